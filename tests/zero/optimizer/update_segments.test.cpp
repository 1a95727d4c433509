/// Addresses of what an update reads and writes: of a step's range, and of a shard.
#include "optimizer/update_segments.hpp"

#include "detail_fixture.hpp"

namespace tessera::zero::detail {
namespace {

/// Rank 1 of 2, which has all gradients and all states (stage 0).
struct Sources : test::Parts {
  Sources()
      : Parts([] {
          EngineConfig c;
          c.dtype = c.communication_dtype = Dtype::bf16;
          c.optimizer = optim::make_spec("AdamW");
          return c;
        }()),
        pair(units, 2),
        of_pair{config, pair, {&pair, Rank(1), true}, *comm, *compute},
        weights(make_resident_weights(of_pair)),
        gradients(make_resident_gradients(of_pair, rules, units)),
        schedule(region_numel(of_pair, pair.end_unit()), {}),
        states(of_pair, state_layouts(of_pair, rules, config.optimizer), *weights, {},
               {memory::MemorySpace::host, compute.get()}) {}
  SegmentSources sources() const {
    return {of_pair, rules, states, schedule, *weights, *gradients, nullptr};
  }

  PartitionPlan pair;
  StoreContext of_pair;
  std::unique_ptr<WeightStore> weights;
  std::unique_ptr<GradientFlow> gradients;
  UpdateSchedule schedule;
  StateTable states;
};

TEST(UpdateSegments, OfAStepBeginAtItsRange) {
  Sources s;
  auto const segments = segments_of_step(s.sources(), s.config.optimizer, s.schedule[0]);
  ASSERT_EQ(segments.list.size(), 3u);
  EXPECT_EQ(segments.gradient_dtype, s.rules.gradient_dtype);
  EXPECT_EQ(segments.weights_dtype, Dtype::bf16);
  auto const at = s.pair.unit(first_unit).parameters[1].offset.value();
  auto const& bias = segments.list[1];
  EXPECT_EQ(bias.master, static_cast<float*>(s.states.region(0, first_unit)) + at);
  EXPECT_EQ(bias.states[1], static_cast<float*>(s.states.region(2, first_unit)) + at);
  EXPECT_EQ(bias.gradient, static_cast<bfloat16*>(s.gradients->region(first_unit)) + at);
  EXPECT_EQ(bias.weights_out, static_cast<bfloat16*>(s.weights->region(first_unit)) + at);
  EXPECT_EQ(bias.parameters[0].name, "b");
}

TEST(UpdateSegments, OfAShardBeginInTheRegion) {
  Sources s;
  auto const& unit = s.pair.unit(first_unit);
  auto const segments = segments_of_shard(s.sources(), s.config.optimizer, first_unit);
  ASSERT_FALSE(segments.list.empty());
  auto const first = std::max(s.of_pair.ownership.shard_begin(first_unit),
                              unit.parameters[segments.list[0].parameters[0].name == "w"   ? 0
                                              : segments.list[0].parameters[0].name == "b" ? 1
                                                                                           : 2]
                                  .offset);
  EXPECT_EQ(segments.list[0].master,
            static_cast<float*>(s.states.region(0, first_unit)) + first.value());
  std::int64_t numel = 0;
  for (auto const& segment : segments.list)
    for (auto const& parameter : segment.parameters) numel += parameter.numel;
  EXPECT_LE(numel, unit.shard_numel);
  EXPECT_GT(numel, 0);
}

/// Tiles of one region have neighboring addresses.
TEST(UpdateSegments, ContinueInTheNextTile) {
  Sources s;
  auto const& unit = s.pair.unit(first_unit);
  UpdateStep const low{0, {first_unit, 0, 32}}, high{1, {first_unit, 32, unit.padded_numel - 32}};
  auto const a = segments_of_step(s.sources(), s.config.optimizer, low);
  auto const b = segments_of_step(s.sources(), s.config.optimizer, high);
  EXPECT_EQ(a.list.back().numel, 32);
  EXPECT_EQ(static_cast<float*>(a.list.back().master) + 32, b.list.front().master);
  EXPECT_EQ(b.list.front().parameters[0].parameter_offset, 32);
}

TEST(UpdateSegments, GiveStatesPerRowByTheirParameter) {
  Sources s;
  auto config = s.config;
  config.optimizer = optim::make_spec("Adafactor");
  StoreContext const context{config, s.pair, s.of_pair.ownership, *s.comm, *s.compute};
  StateTable const states(context, state_layouts(context, s.rules, config.optimizer), *s.weights,
                          {}, {memory::MemorySpace::host, s.compute.get()});
  SegmentSources const sources{context,    s.rules,      states, s.schedule,
                               *s.weights, *s.gradients, nullptr};
  auto const at = parameter_states(sources, first_unit, 2, UnitOffset(70));
  ASSERT_EQ(at.size() + 1, states.count());
  for (std::size_t k = 1; k < states.count(); ++k) {
    auto const& layout = states[k];
    void* const expected = layout.spec.extent == optim::Extent::elementwise
                               ? nullptr
                               : static_cast<float*>(states.region(k, first_unit)) +
                                     layout.plan->unit(first_unit).parameters[2].offset.value();
    EXPECT_EQ(at[k - 1], expected) << layout.spec.name;
  }
}

}  // namespace
}  // namespace tessera::zero::detail
