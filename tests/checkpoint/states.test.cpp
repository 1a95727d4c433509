/// States that keep one value per row or column, from the save to the tools.
#include "tessera/checkpoint/format/states.hpp"

#include "fixture.hpp"
#include "tessera/checkpoint/save/restore.hpp"
#include "tessera/checkpoint/tools/convert.hpp"
#include "tessera/checkpoint/tools/verify.hpp"

namespace tessera::checkpoint::test {
namespace {

using namespace tessera::test;
using optim::Extent;

/// The states of Adafactor of one rank.
class FactoredState {
 public:
  FactoredState(zero::PartitionPlan const& plan, int rank)
      : rows_(plan.of_extent(Extent::per_row)),
        columns_(plan.of_extent(Extent::per_column)),
        weights_(plan, rank, {"fp32"}),
        of_rows_(rows_, rank, {"exp_avg_sq_row"}),
        of_columns_(columns_, rank, {"exp_avg_sq_col"}) {}
  FactoredState(FactoredState const&) = delete;

  FactoredState& fill(std::int64_t step) {
    weights_.fill(step), of_rows_.fill(step), of_columns_.fill(step);
    return *this;
  }
  std::int64_t wrong(std::int64_t step) {
    return weights_.wrong(step) + of_rows_.wrong(step) + of_columns_.wrong(step);
  }
  StateViews views() {
    auto views = weights_.views();
    views.push_back(of_rows_.views()[0]);
    views.back().extent = Extent::per_row;
    views.push_back(of_columns_.views()[0]);
    views.back().extent = Extent::per_column;
    return views;
  }

 private:
  zero::PartitionPlan rows_, columns_;
  RankState weights_, of_rows_, of_columns_;
};

/// Saved by @p ranks ranks.
fs::path save_factored(fs::path const& checkpoints, int ranks,
                       std::vector<Rank> const& file_starts = {}) {
  auto const units = toy_units();
  zero::PartitionPlan const plan(units, ranks);
  std::vector<std::unique_ptr<FactoredState>> states;
  std::vector<StateViews> views;
  for (int r = 0; r < ranks; ++r) {
    states.push_back(std::make_unique<FactoredState>(plan, r));
    views.push_back(states.back()->fill(5).views());
  }
  auto request = request_for(checkpoints, 5, plan, units);
  request.file_starts = file_starts;
  return save_all(request, views).directory;
}

TEST(States, LayersBeginWithTheElementwiseStates) {
  optim::OptimizerSpec spec;
  spec.states = {{"exp_avg"}, {"rows", Dtype::fp32, Extent::per_row}};
  EXPECT_EQ(layers_of(spec),
            (StateLayers{{Extent::elementwise, {"fp32", "exp_avg"}}, {Extent::per_row, {"rows"}}}));
}

/// Any number of ranks reads what any other number has written.
TEST(States, ReducedStatesAreReadByOtherNumbersOfRanks) {
  auto const units = toy_units();
  for (int const writers : {1, 2, 4, 7})
    for (int const readers : {1, 3, 4}) {
      ScratchDirectory const dir;
      auto const manifest = read_manifest(save_factored(
          dir.path(), writers, writers == 4 ? starts_at({0, 2}) : std::vector<Rank>{}));
      zero::PartitionPlan const plan(units, readers);
      for (int r = 0; r < readers; ++r) {
        FactoredState state(plan, r);
        auto const report = restore_rank(manifest, plan, Rank(r), state.views());
        EXPECT_EQ(state.wrong(5), 0) << writers << " to " << readers << " ranks";
        EXPECT_TRUE(report.nonfinite.empty());
      }
    }
}

TEST(States, AManifestNamesReducedStatesWithTheirShapes) {
  ScratchDirectory const dir;
  auto const manifest = read_manifest(save_factored(dir.path(), 2));
  EXPECT_EQ(manifest.needed_version(), 3);
  EXPECT_EQ(manifest.states, std::vector<std::string>{"fp32"});
  EXPECT_EQ(manifest.state_names(),
            (std::vector<std::string>{"fp32", "exp_avg_sq_row", "exp_avg_sq_col"}));
  ASSERT_EQ(manifest.reduced_states.size(), 2u);
  auto const& tensor = manifest.reduced_states[1].tensors[0];
  EXPECT_EQ(tensor.name, "transformer.wte.weight");
  EXPECT_EQ(tensor.shape, std::vector<std::int64_t>{24});
  EXPECT_EQ(parse_manifest(manifest_text(manifest), manifest.directory).reduced_states,
            manifest.reduced_states);
}

TEST(States, VerifyFindsDamageInAReducedState) {
  ScratchDirectory const dir;
  auto const directory = save_factored(dir.path(), 2);
  EXPECT_TRUE(verify(directory).ok());
  auto const manifest = read_manifest(directory);
  auto const& extent = manifest.reduced_states[0].tensors[0].extents[0];
  flip_bit(manifest.shard_path(extent.shard), extent.states[0].file_offset);
  auto const report = verify(directory);
  ASSERT_EQ(report.damages, 1);
  EXPECT_EQ(report.found[0].state, "exp_avg_sq_row");
  zero::PartitionPlan const plan(toy_units(), 1);
  FactoredState state(plan, 0);
  EXPECT_THROW((void)restore_rank(manifest, plan, first_rank, state.views()), DataError);
}

TEST(States, AConversionRefusesReducedStates) {
  ScratchDirectory const dir;
  ConvertOptions options;
  options.source = save_factored(dir.path(), 2);
  options.destination = dir / "converted";
  EXPECT_THAT(message_of<UsageError>([&] { convert(options); }),
              ::testing::HasSubstr("exp_avg_sq_row"));
}

TEST(States, AnElementwiseStateIsNotAfterAReducedOne) {
  zero::PartitionPlan const plan(toy_units(), 1);
  FactoredState state(plan, 0);
  auto views = state.views();
  std::swap(views[0], views[2]);
  EXPECT_THROW((void)layers_of(views), InternalError);
}

}  // namespace
}  // namespace tessera::checkpoint::test
