#include "optimizer/parameter_sums.hpp"

#include "detail_fixture.hpp"

namespace tessera::zero::detail {
namespace {

struct Sums : test::Parts {
  Sums()
      : Parts([] {
          EngineConfig c;
          c.optimizer = optim::make_spec("Lamb");
          return c;
        }()),
        optimizer(optim::make_optimizer(config.optimizer)),
        summing(dynamic_cast<optim::SummingOptimizer const&>(*optimizer)),
        buffer(context, summing, memory::MemorySpace::host) {}

  std::unique_ptr<optim::Optimizer> optimizer;
  optim::SummingOptimizer const& summing;
  ParameterSumBuffer buffer;
};

TEST(ParameterSumBuffer, HasRoomForEachParameterInEachRound) {
  Sums s;
  std::vector<double*> places;
  for (auto const& [unit, parameter] : {std::pair{0, 0}, {0, 1}, {0, 2}, {1, 0}})
    for (double* const sum : s.buffer.of_parameter(UnitIndex(unit), parameter))
      places.push_back(sum);
  EXPECT_EQ(places.size(), 4u * static_cast<std::size_t>(s.summing.rounds()));
  std::sort(places.begin(), places.end());
  EXPECT_EQ(std::adjacent_find(places.begin(), places.end()), places.end());
  for (double* const sum : places) *sum = 3.0;
  s.buffer.clear(*s.compute);
  for (double const* const sum : places) EXPECT_EQ(*sum, 0.0);
}

/// The two parameters that decay are not neighbors: a run of each group, with its parameters.
TEST(ParameterSumBuffer, FindsTheSumsOfTheParametersInARun) {
  Sums s;
  auto const all =
      s.buffer.of_runs(first_unit, UnitOffset(0), UnitOffset(s.plan.unit(first_unit).padded_numel));
  ASSERT_EQ(all.of.size(), static_cast<std::size_t>(s.summing.rounds()));
  ASSERT_EQ(all.of[0].size(), 3u);
  EXPECT_EQ(all.of[0][1][0], s.buffer.of_parameter(first_unit, 1)[0]);
  auto const second = s.plan.unit(first_unit).parameters[1];
  auto const part = s.buffer.of_runs(first_unit, second.offset, second.end());
  ASSERT_EQ(part.of[0].size(), 1u);
  EXPECT_EQ(part.of[0][0][0], s.buffer.of_parameter(first_unit, 1)[0]);
}

}  // namespace
}  // namespace tessera::zero::detail
