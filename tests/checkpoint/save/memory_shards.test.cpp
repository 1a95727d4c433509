#include "save/detail/memory_shards.hpp"

#include <fstream>
#include <iterator>

#include "shared_fixture.hpp"
#include "tessera/checkpoint/format/directory.hpp"

using namespace tessera;
using namespace tessera::test;
using ::testing::HasSubstr;

namespace {

std::string bytes_of(fs::path const& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(CheckShard, ReadsEveryChunk) {
  ScratchDirectory const files;
  save_toy(files.path(), 1, 2);
  auto const manifest = checkpoint::read_manifest(files.path() / "step_00000001");
  for (int const shard : {0, 1}) EXPECT_NO_THROW(checkpoint::detail::check_shard(manifest, shard));
  auto const damaged = manifest.shard_path(1);
  auto text = bytes_of(damaged);
  for (auto const& tensor : manifest.tensors)
    for (auto const& extent : tensor.extents)
      if (extent.shard == 1) text[static_cast<std::size_t>(extent.states[2].file_offset) + 1] ^= 1;
  std::ofstream(damaged, std::ios::binary) << text;
  EXPECT_NO_THROW(checkpoint::detail::check_shard(manifest, 0));
  EXPECT_THROW(checkpoint::detail::check_shard(manifest, 1), DataError);
  fs::remove(damaged);
  EXPECT_THROW(checkpoint::detail::check_shard(manifest, 1), DataError);
}

TEST(PrepareInMemory, KeepsTheNewestCompleteOne) {
  ScratchDirectory const files;
  auto const units = toy_units();
  zero::PartitionPlan const plan(units, 1);
  for (std::int64_t const step : {1, 2, 4}) save_toy(files.path(), step, 1);
  fs::create_directories(files.path() / "step_00000003");  // left by an interrupted save
  auto const made =
      checkpoint::detail::prepare_in_memory(request_for(files.path(), 4, plan, units));
  EXPECT_EQ(made, files.path() / "step_00000004");
  EXPECT_TRUE(fs::is_empty(made)) << "another training of the step is replaced";
  EXPECT_TRUE(fs::exists(files.path() / "step_00000002/manifest.json"));
  for (auto const* gone : {"step_00000001", "step_00000003"})
    EXPECT_FALSE(fs::exists(files.path() / gone));
}

/// Each rank has a directory of its own.
class CarryOut : public SharedRun {
 protected:
  CarryOut() {
    own = dir / concat("rank", comm->rank());
    save_toy(own, 1, 2);
    manifest = checkpoint::read_manifest(own / "step_00000001");
    original = bytes_of(manifest.shard_path(0));
  }
  fs::path own;
  checkpoint::Manifest manifest;
  std::string original;
};

TEST_F(CarryOut, ReplacesTheFileOfTheReceiver) {
  if (comm->size() < 2) GTEST_SKIP() << "one rank sends nothing";
  if (comm->rank() == 1) std::ofstream(manifest.shard_path(0)) << "damaged";
  checkpoint::detail::carry_out({{0, 0, 1}, {1, 1, 0}}, manifest, *comm);
  EXPECT_EQ(bytes_of(manifest.shard_path(0)), original);
}

TEST_F(CarryOut, AFileThatIsMissingFailsOnTheSenderOnly) {
  if (comm->size() < 2) GTEST_SKIP() << "one rank sends nothing";
  if (comm->rank() == 0) fs::remove(manifest.shard_path(0));
  auto const move = [&] { checkpoint::detail::carry_out({{0, 0, 1}, {1, 1, 0}}, manifest, *comm); };
  if (comm->rank() == 0)
    EXPECT_THROW(move(), IoError);
  else
    EXPECT_NO_THROW(move());
  if (comm->rank() == 1) {
    EXPECT_THROW(checkpoint::detail::check_shard(manifest, 0), DataError);
  }
}

}  // namespace
