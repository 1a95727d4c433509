/// Manifests whose parts contradict each other are refused, whoever wrote them.
#include "tessera/checkpoint/format/manifest.hpp"

#include <functional>

#include "fixture.hpp"
#include "tessera/checkpoint/tools/convert.hpp"

using namespace tessera;
using namespace tessera::test;
using checkpoint::Manifest;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

using Change = std::function<void(Manifest&)>;

std::string refusal(Manifest manifest, Change const& change) {
  change(manifest);
  return message_of<DataError>(
      [&] { checkpoint::detail::check_consistency(manifest, "manifest.json"); });
}

TEST(ManifestCheck, SortsTheExtentsOfWhatIsConsistent) {
  ScratchDirectory dir;
  auto const good = checkpoint::read_manifest(save_toy(dir.path(), 9, 4).directory);
  auto shuffled = good;
  for (auto& tensor : shuffled.tensors) std::reverse(tensor.extents.begin(), tensor.extents.end());
  checkpoint::detail::check_consistency(shuffled, "manifest.json");
  EXPECT_EQ(shuffled.tensors, good.tensors);
}

TEST(ManifestCheck, ContradictionsAreNamed) {
  ScratchDirectory dir;
  auto const good =
      checkpoint::read_manifest(save_toy(dir.path(), 9, 4, 0, 24, starts_at({0, 2})).directory);
  struct Case {
    Change change;
    char const* message;
  };
  Case const cases[] = {
      {[](Manifest& m) { m.checksum_chunk = 6; }, "checksum_block_bytes is 6"},
      {[](Manifest& m) { m.states.clear(); }, "'states' is empty"},
      {[](Manifest& m) { m.states[1] = m.states[0]; }, "names one twice"},
      {[](Manifest& m) { m.shards[1].file = m.shards[0].file; }, "shard_00000.h5 is listed twice"},
      {[](Manifest& m) { m.tensors[1].name = m.tensors[0].name; }, "is listed twice"},
      {[](Manifest& m) { m.tensors[0].name.clear(); }, "the name is empty"},
      {[](Manifest& m) { m.tensors[1].aliases = {m.tensors[0].name}; }, "the alias 'transformer."},
      {[](Manifest& m) { m.tensors[0].extents[0].offset = 1; },
       "starts at element 1 where 0 was due"},
      {[](Manifest& m) { m.tensors[0].extents.pop_back(); }, "the extents hold"},
      {[](Manifest& m) { m.tensors[0].extents.back().numel += 1; }, "ends after the tensor's 2424"},
      {[](Manifest& m) { m.tensors[0].extents[0].shard = 2; }, "shard 2 of 2"},
      {[](Manifest& m) { m.tensors[0].extents[0].states.pop_back(); }, "has 2 states, not 3"},
      {[](Manifest& m) { m.tensors[0].extents[0].states[0].file_offset = m.shards[0].bytes; },
       "are not inside shard_00000.h5"},
      {[](Manifest& m) { m.tensors[0].extents[0].states[0].xxh3.push_back(1); }, "2 checksums for"},
      {[](Manifest& m) {
         m.tensors[0].extents[0].states[0].chunks.push_back({0, 1});
       },
       "the shard is not compressed"},
      {[](Manifest& m) { m.tensors[0].extents[1].states[2].file_offset += 4; },
       "do not follow each other in shard_00000.h5"},
      {[](Manifest& m) {
         m.tensors[0].extents[2].shard = 0;
         m.tensors[0].extents[1].shard = 1;
         for (auto& state : m.tensors[0].extents[1].states) state.file_offset = 0;
       },
       "has two separate parts of it"},
  };
  for (auto const& c : cases)
    EXPECT_THAT(refusal(good, c.change), AllOf(HasSubstr("manifest.json"), HasSubstr(c.message)));
}

TEST(ManifestCheck, StoredChunksThatCannotBeAreNamed) {
  ScratchDirectory dir;
  save_toy(dir / "run", 20, 2);
  checkpoint::convert({.source = dir / "run",
                       .destination = dir / "step",
                       .compression = checkpoint::Compression::shuffle_gzip});
  auto const good = checkpoint::read_manifest(dir / "step");
  auto const state = [](Manifest& m) -> checkpoint::StateLocation& {
    return m.tensors[0].extents[0].states[1];
  };
  struct Case {
    Change change;
    char const* message;
  };
  Case const cases[] = {
      {[&](Manifest& m) { state(m).chunks[0].offset = m.shards[0].bytes; },
       "is not inside shard_00000.h5"},
      {[&](Manifest& m) { state(m).chunks[0].offset = INT64_MAX; }, "is not inside shard_00000.h5"},
      {[&](Manifest& m) {
         m.shards[0].bytes = std::int64_t{1} << 40;
         state(m).chunks[0].bytes = std::int64_t{1} << 30;
       },
       "larger than its elements can take"},
      {[&](Manifest& m) { state(m).chunks[0].bytes = 0; }, "a chunk of 0 bytes"},
      {[&](Manifest& m) {
         state(m).chunks.push_back({4096, 1});
       },
       "2 chunks for"},
      {[&](Manifest& m) { state(m).chunks.clear(); }, "has no chunks"},
      {[](Manifest& m) { m.shards[0].compression = checkpoint::Compression::none; },
       "the shard is not compressed"},
  };
  for (auto const& c : cases) EXPECT_THAT(refusal(good, c.change), HasSubstr(c.message));
}

}  // namespace
