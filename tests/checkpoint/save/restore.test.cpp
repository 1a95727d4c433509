/// Saved with N ranks, restored with M: every element where it belongs, for any plan. One process
/// plays all ranks.
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "fixture.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/save/restore.hpp"
#include "tessera/checkpoint/tools/verify.hpp"

using namespace tessera;
using namespace tessera::test;

/// Bytes on the heap of this process.
namespace heap {
namespace {
std::atomic<std::int64_t> now{0}, most{0};
std::int64_t live() { return now; }
std::int64_t peak() { return most; }
void reset_peak() { most = now.load(); }
}  // namespace
}  // namespace heap

void* operator new(std::size_t bytes) {
  void* const memory = std::malloc(bytes);
  if (!memory) throw std::bad_alloc();
  std::int64_t const total = heap::now += static_cast<std::int64_t>(malloc_usable_size(memory));
  for (std::int64_t seen = heap::most;
       seen < total && !heap::most.compare_exchange_weak(seen, total);) {
  }
  return memory;
}
void operator delete(void* memory) noexcept {
  if (memory) heap::now -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

namespace {

class Reshard : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(Reshard, EveryElementArrives) {
  auto const [from, to] = GetParam();
  ScratchDirectory dir;
  auto const saved = save_toy(dir.path(), 30, from);
  auto const manifest = checkpoint::read_manifest(saved.directory);
  // another alignment: extents start elsewhere, as they do with another precision
  for (std::int64_t alignment : {32, 1, 128}) {
    zero::PartitionPlan const plan(toy_units(), to, alignment);
    for (int rank = 0; rank < to; ++rank) {
      RankState state(plan, rank);
      checkpoint::restore_rank(manifest, plan, Rank(rank), state.views());
      EXPECT_EQ(state.wrong(30), 0)
          << "rank " << rank << " of " << to << ", alignment " << alignment;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Reshard,
                         ::testing::Values(std::pair(1, 1), std::pair(4, 1), std::pair(4, 2),
                                           std::pair(4, 3), std::pair(1, 4), std::pair(3, 7),
                                           std::pair(64, 5), std::pair(5, 200)));

TEST(Restore, PaddingBecomesZero) {
  ScratchDirectory dir;
  auto const manifest = checkpoint::read_manifest(save_toy(dir.path(), 1, 2).directory);
  zero::PartitionPlan const plan(toy_units(), 3);
  for (int rank = 0; rank < 3; ++rank) {
    RankState state(plan, rank);
    checkpoint::restore_rank(manifest, plan, Rank(rank), state.views());
    for (float v : state.memory(0)) EXPECT_NE(v, -1e30f);
  }
}

/// What a rank reads beyond what it owns are the rest of the chunks at the two ends of a run, and
/// one chunk is all it holds otherwise.
TEST(Restore, ReadsAndHoldsItsOwnPartOnly) {
  ScratchDirectory dir;
  memory::ParameterSpec large;
  large.name = "large";
  large.shape = {5000, 3000};  // 60 MB in 4 MiB chunks
  std::vector<memory::UnitSpec> const units{{"unit", {large}}};
  zero::PartitionPlan const two(units, 2), eight(units, 8);
  auto const value = [](std::int64_t i) { return static_cast<float>(i % 9973); };
  auto const saved = checkpoint::save_all(
      request_for(dir.path(), 3, two, units),
      checkpoint::StreamedStates{
          {"fp32"},
          [&](auto const&, auto const& extent, std::int64_t first, std::int64_t numel, float* out) {
            for (std::int64_t i = 0; i < numel; ++i)
              out[i] = value(extent.parameter_offset.value() + first + i);
          }});
  auto const manifest = checkpoint::read_manifest(saved.directory);
  for (int rank : {0, 3, 7}) {
    RankState state(eight, rank, {"fp32"});
    auto const views = state.views();
    std::int64_t const held = heap::live();
    heap::reset_peak();
    auto const report = checkpoint::restore_rank(manifest, eight, Rank(rank), views);
    EXPECT_LT(heap::peak() - held, manifest.checksum_chunk + (std::int64_t{1} << 20))
        << "a chunk at an edge, and the part itself";
    auto const own = eight.extents(Rank(rank))[0];
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < own.numel; ++i)
      wrong += state.memory(0)[static_cast<std::size_t>(own.partition_offset.value() + i)] !=
               value(own.parameter_offset.value() + i);
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(report.bytes_needed, own.numel * 4);
    EXPECT_GE(report.bytes_read, report.bytes_needed);
    EXPECT_LE(report.bytes_read, report.bytes_needed + 2 * manifest.checksum_chunk);
    EXPECT_LT(report.bytes_read, manifest.parameter_count() * 4 / 3) << "no rank reads the model";
  }
}

TEST(Restore, LargeExtentsAreReadChunkByChunk) {
  ScratchDirectory dir;
  std::int64_t const width =
      1100;  // c_attn is 14.5 MB: several checksum chunks, cut in the middle by 3 ranks
  auto const manifest = checkpoint::read_manifest(save_toy(dir.path(), 3, 2, 0, width).directory);
  EXPECT_GT(manifest.find("transformer.h.0.attn.c_attn.weight")->extents[0].states[0].xxh3.size(),
            1u);
  zero::PartitionPlan const plan(toy_units(width), 3);
  for (int rank = 0; rank < 3; ++rank) {
    RankState state(plan, rank);
    checkpoint::restore_rank(manifest, plan, Rank(rank), state.views());
    EXPECT_EQ(state.wrong(3), 0);
  }
}

TEST(Restore, AnotherModelIsRefused) {
  ScratchDirectory dir;
  auto const manifest = checkpoint::read_manifest(save_toy(dir.path(), 1, 2).directory);
  auto const refuse = [&](std::vector<memory::UnitSpec> const& units) {
    zero::PartitionPlan const plan(units, 1);
    RankState state(plan, 0);
    return message_of<DataError>(
        [&] { checkpoint::restore_rank(manifest, plan, first_rank, state.views()); });
  };
  auto units = toy_units();
  units[1].parameters[0].name = "transformer.h.0.ln_9.weight";
  EXPECT_THAT(refuse(units), ::testing::HasSubstr("has no tensor transformer.h.0.ln_9.weight"));
  EXPECT_THAT(refuse(toy_units(32)),
              ::testing::HasSubstr("has shape [101, 24], the model wants [101, 32]"));
  units = toy_units();
  units.pop_back();
  EXPECT_THAT(refuse(units), ::testing::HasSubstr("has 8 tensors, the model 5 parameters"));
}

TEST(Restore, AMissingStateIsNamed) {
  ScratchDirectory dir;
  auto const manifest = checkpoint::read_manifest(save_toy(dir.path(), 1, 1).directory);
  zero::PartitionPlan const plan(toy_units(), 1);
  RankState state(plan, 0, {"fp32", "momentum"});
  EXPECT_THAT(message_of<DataError>(
                  [&] { checkpoint::restore_rank(manifest, plan, first_rank, state.views()); }),
              ::testing::HasSubstr(
                  "has no state 'momentum', only [\"fp32\", \"exp_avg\", \"exp_avg_sq\"]"));
}

TEST(Save, TheViewIsMadeOnDemand) {
  ScratchDirectory dir;
  auto const step = save_toy(dir.path(), 1, 2).directory;
  EXPECT_TRUE(fs::exists(step / "view.h5"));
  fs::remove(step / "view.h5");
  EXPECT_EQ(checkpoint::make_view(step), step / "view.h5");
  EXPECT_TRUE(fs::exists(step / "view.h5"));
  EXPECT_TRUE(checkpoint::verify(step).ok());
}

TEST(Save, TheManifestKeepsWhatItWasGiven) {
  ScratchDirectory dir;
  auto const m = checkpoint::read_manifest(save_toy(dir.path(), 12, 3).directory);
  EXPECT_EQ(m.run_id, "run-7");
  EXPECT_EQ(m.step, 12);
  EXPECT_EQ(m.tokens, 12000);
  EXPECT_EQ(m.samples, 96);
  EXPECT_EQ(m.world_size, 3);
  EXPECT_EQ(m.zero_stage, 2);
  EXPECT_EQ(m.model_config.at("n_embd").as_int(), 24);
  EXPECT_EQ(m.trainer_state.at("seed").as_int(), 42);
  EXPECT_EQ(m.find("lm_head.weight"), m.find("transformer.wte.weight"));
  EXPECT_EQ(m.parameter_count(), zero::PartitionPlan(toy_units(), 1).parameter_count());
}

}  // namespace
