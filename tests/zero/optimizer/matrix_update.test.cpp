#include "optimizer/matrix_update.hpp"

#include "detail_fixture.hpp"

namespace tessera::zero::detail {
namespace {

/// Takes parameters of two dimensions and more; records the calls.
class Recorder final : public optim::MatrixOptimizer {
 public:
  optim::OptimizerSpec const& spec() const override { return spec_; }
  bool takes_matrix(optim::ParameterRun const& run) const override { return run.shape.size() > 1; }
  std::int64_t workspace(std::vector<std::int64_t> const&) const override { return 1; }
  void advance(memory::Queue&, optim::Segments const&, optim::StepControl const&,
               optim::Directions const& directions) const override {
    calls += "a";
    advanced = directions;
  }
  void complete(memory::Queue&, float* matrix, std::vector<std::int64_t> const& shape,
                float* workspace) const override {
    calls += "c";
    *workspace = 1.0f;
    completed.emplace_back(matrix, shape);
  }
  void update_with(memory::Queue&, optim::Segments const&, optim::StepControl const&,
                   optim::Directions const& directions) const override {
    calls += "u";
    EXPECT_EQ(directions, advanced);
  }

  optim::OptimizerSpec spec_ = optim::make_spec("Muon");
  mutable std::string calls;
  mutable optim::Directions advanced;
  mutable std::vector<std::pair<float*, std::vector<std::int64_t>>> completed;
};

/// The direction of an element is at its place in the unit, and so are the complete matrices.
TEST(MatrixUpdate, CompletesTheMatricesOfAUnitBetweenItsPhases) {
  test::Parts parts;
  Recorder const recorder;
  MatrixUpdate const update(parts.context, recorder, memory::MemorySpace::host);
  auto const& layout = parts.plan.unit(first_unit);
  std::vector<float> masters(static_cast<std::size_t>(layout.padded_numel));
  optim::Segments segments;
  for (auto const& slot : layout.parameters) {
    optim::Segment segment;
    segment.master = masters.data() + slot.offset.value();
    segment.numel = slot.numel;
    segments.list.push_back(segment);
  }
  update.update(*parts.compute, recorder, {first_unit, segments, masters.data()},
                {1, 0.1, nullptr});
  EXPECT_EQ(recorder.calls, "accu");
  ASSERT_EQ(recorder.advanced.size(), 3u);
  ASSERT_EQ(recorder.completed.size(), 2u);
  EXPECT_EQ(recorder.completed[0].first, recorder.advanced[0]);
  EXPECT_EQ(recorder.completed[1].first, recorder.advanced[2]);
  EXPECT_EQ(recorder.completed[0].second, (std::vector<std::int64_t>{5, 8}));
  EXPECT_EQ(recorder.advanced[1] - recorder.advanced[0],
            layout.parameters[1].offset - layout.parameters[0].offset);
}

TEST(MatrixUpdate, HasNothingToCompleteInAUnitWithoutMatrices) {
  test::Parts parts;
  Recorder const recorder;
  MatrixUpdate const update(parts.context, recorder, memory::MemorySpace::host);
  optim::Segments const none;
  update.update(*parts.compute, recorder, {UnitIndex(1), none, nullptr}, {1, 0.1, nullptr});
  EXPECT_EQ(recorder.calls, "au");
}

}  // namespace
}  // namespace tessera::zero::detail
