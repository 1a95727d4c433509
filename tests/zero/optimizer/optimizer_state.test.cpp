/// The list of states: allocation by extent, segments.
#include "optimizer/optimizer_state.hpp"

#include "detail_fixture.hpp"

namespace tessera::zero::detail {
namespace {

/// Keeps one state of each extent, and what it was called with.
class Recorder final : public optim::Optimizer {
 public:
  Recorder() {
    spec_ = optim::make_spec("SGD");
    spec_.states = {{"all"},
                    {"rows", Dtype::fp32, optim::Extent::per_row},
                    {"columns", Dtype::fp32, optim::Extent::per_column},
                    {"one", Dtype::fp32, optim::Extent::scalar}};
  }
  optim::OptimizerSpec const& spec() const override { return spec_; }
  void update(memory::Queue& queue, optim::Segments const& segments,
              optim::StepControl const& control) const override {
    queue_ = &queue;
    segments_ = segments;
    step_ = control.step;
  }
  optim::OptimizerSpec spec_;
  mutable memory::Queue* queue_ = nullptr;
  mutable optim::Segments segments_;
  mutable std::int64_t step_ = 0;
};

struct State : test::Parts {
  explicit State(Dtype dtype = Dtype::bf16)
      : Parts([&] {
          EngineConfig c;
          c.dtype = c.communication_dtype = dtype;
          return c;
        }()),
        weights(make_resident_weights(context)),
        gradients(make_resident_gradients(context, rules, units)),
        state(context, rules, {*weights, *gradients, recorder}) {}

  Recorder recorder;
  std::unique_ptr<WeightStore> weights;
  std::unique_ptr<GradientFlow> gradients;
  OptimizerState state;
};

TEST(OptimizerState, AllocatesEachStateByItsExtent) {
  State s;
  ASSERT_EQ(s.state.states().count(), 5u);
  EXPECT_EQ(s.state.states().spec(0).name, "fp32");
  EXPECT_EQ(s.state.states().spec(2).name, "rows");
  EXPECT_EQ(*s.state.states()[1].plan, s.plan);
  // every parameter begins at a multiple of 32: three in the block, one in the head
  EXPECT_EQ(s.state.states()[2].plan->unit(UnitIndex(0)).shard_numel, 96);
  EXPECT_EQ(s.state.states()[4].plan->unit(UnitIndex(1)).shard_numel, 32);
  std::size_t sum = 0;
  for (std::size_t k = 1; k < 5; ++k)
    sum += 4 * static_cast<std::size_t>(s.state.states()[k].plan->partition_numel());
  EXPECT_EQ(s.state.states().optimizer_bytes(), sum);
  EXPECT_EQ(s.state.states().bytes(master_weights),
            4 * static_cast<std::size_t>(s.plan.partition_numel()));
  EXPECT_FALSE(s.state.shards().are_copies());
}

TEST(OptimizerState, Fp32WeightsAreTheirOwnMaster) {
  State s(Dtype::fp32);
  EXPECT_EQ(s.state.states().bytes(master_weights), 0u);
  EXPECT_EQ(static_cast<void*>(s.state.shards().host(master_weights)[1]),
            s.weights->region(UnitIndex(1)));
}

TEST(OptimizerState, GivesTheOptimizerSegmentsWithParameterBorders) {
  State s;
  s.state.update(UnitIndex(0), {7, 0.5, nullptr});
  EXPECT_EQ(s.recorder.step_, 7);
  EXPECT_EQ(s.recorder.queue_, s.compute.get());
  auto const& list = s.recorder.segments_.list;
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[1].numel, 8);
  EXPECT_EQ(list[1].group, s.recorder.spec_.group_of(optim::WeightDecay::skipped));
  EXPECT_EQ(list[2].parameters[0].shape, (std::vector<std::int64_t>{3, 2, 4}));
  EXPECT_EQ(list[2].master, s.state.shards().host(0)[0] + 96);
  EXPECT_EQ(list[2].states[0], s.state.shards().host(1)[0] + 96) << "element-wise: at the segment";
  EXPECT_EQ(list[2].states[1], nullptr) << "per row: not of the segment";
  ASSERT_EQ(list[2].parameter_states.size(), 1u);
  EXPECT_EQ(list[2].parameter_states[0][0], nullptr);
  EXPECT_EQ(list[2].parameter_states[0][1], s.state.shards().host(2)[0] + 64) << "at the parameter";
  EXPECT_NE(list[2].weights_out, nullptr);
}

}  // namespace
}  // namespace tessera::zero::detail
