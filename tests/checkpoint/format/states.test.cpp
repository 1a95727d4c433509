/// States that keep one value per row or column, from the save to the tools.
#include "tessera/checkpoint/format/states.hpp"

#include "fixture.hpp"
#include "tessera/checkpoint/interchange/safetensors_reader.hpp"
#include "tessera/checkpoint/save/restore.hpp"
#include "tessera/checkpoint/tools/compare.hpp"
#include "tessera/checkpoint/tools/consolidate.hpp"
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
                       std::vector<Rank> const& file_starts = {}, std::int64_t step = 5) {
  auto const units = toy_units();
  zero::PartitionPlan const plan(units, ranks);
  std::vector<std::unique_ptr<FactoredState>> states;
  std::vector<StateViews> views;
  for (int r = 0; r < ranks; ++r) {
    states.push_back(std::make_unique<FactoredState>(plan, r));
    views.push_back(states.back()->fill(step).views());
  }
  auto request = request_for(checkpoints, step, plan, units);
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

/// The elements of both states after a restore of @p directory by @p ranks ranks.
std::int64_t wrong_after_restore(fs::path const& directory, int ranks) {
  auto const manifest = read_manifest(directory);
  zero::PartitionPlan const plan(toy_units(), ranks);
  std::int64_t wrong = 0;
  for (int r = 0; r < ranks; ++r) {
    FactoredState state(plan, r);
    restore_rank(manifest, plan, Rank(r), state.views());
    wrong += state.wrong(5);
  }
  return wrong;
}

TEST(States, AConversionKeepsReducedStates) {
  struct Case {
    int ranks = 0, per_file = 0;
    Compression compression = Compression::none;
    std::size_t files = 0;
  };
  for (auto const& c : {Case{0, 0, Compression::none, 4}, Case{0, 3, Compression::shuffle_gzip, 2},
                        Case{7, 2, Compression::none, 4}, Case{1, 0, Compression::none, 1},
                        Case{3, 1, Compression::shuffle_gzip, 3}}) {
    ScratchDirectory const dir;
    auto const source = save_factored(dir / "run", 4);
    convert({.source = source,
             .destination = dir / "out",
             .ranks = c.ranks,
             .ranks_per_file = c.per_file,
             .compression = c.compression});
    auto const manifest = read_manifest(dir / "out");
    EXPECT_EQ(manifest.shards.size(), c.files);
    EXPECT_EQ(manifest.state_names(), read_manifest(source).state_names());
    EXPECT_TRUE(verify(dir / "out").ok());
    for (int const ranks : {1, 3}) EXPECT_EQ(wrong_after_restore(dir / "out", ranks), 0);
    auto const difference = compare({.a = source, .b = dir / "out"});
    EXPECT_EQ(difference.tensors.size(), 3u * 8u);
    EXPECT_EQ(difference.max(), 0.0);
    EXPECT_TRUE(difference.same_tensors());
  }
}

TEST(States, ADifferenceInAReducedStateIsFound) {
  ScratchDirectory const dir;
  auto const a = save_factored(dir / "a", 2), b = save_factored(dir / "b", 3, {}, 6);
  auto const report = compare({.a = a, .b = b, .states = {"exp_avg_sq_col"}});
  EXPECT_EQ(report.states, std::vector<std::string>{"exp_avg_sq_col"});
  ASSERT_EQ(report.tensors.size(), 8u);
  EXPECT_EQ(report.tensors[0].numel, 24);
  EXPECT_EQ(report.tensors[0].different, 24);
  save_toy(dir / "adam", 5, 1);
  auto const other = compare({.a = a, .b = dir / "adam"});
  EXPECT_EQ(other.states, std::vector<std::string>{"fp32"});
  EXPECT_EQ(other.a.only_states, (std::vector<std::string>{"exp_avg_sq_row", "exp_avg_sq_col"}));
  EXPECT_EQ(other.b.only_states, (std::vector<std::string>{"exp_avg", "exp_avg_sq"}));
}

TEST(States, AReducedStateIsConsolidated) {
  ScratchDirectory const dir;
  save_factored(dir / "run", 3);
  consolidate(
      {.checkpoint = dir / "run", .output = dir / "rows.safetensors", .state = "exp_avg_sq_row"});
  SafetensorsReader const reader(dir / "rows.safetensors");
  EXPECT_EQ(reader.entries().size(), 8u);
  std::vector<float> rows(101);
  reader.read_as_fp32("transformer.wte.weight", 0, 101, rows.data());
  for (std::int64_t i = 0; i < 101; ++i)
    EXPECT_EQ(rows[static_cast<std::size_t>(i)],
              element("transformer.wte.weight", "exp_avg_sq_row", i, 5));
  EXPECT_THAT(
      message_of<DataError>([&] {
        consolidate({.checkpoint = dir / "run", .output = dir / "x.safetensors", .state = "rows"});
      }),
      ::testing::AllOf(::testing::HasSubstr("has no state 'rows'"),
                       ::testing::HasSubstr("exp_avg_sq_row")));
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
