/// Checkpoints in other files, compressed or not: every element, and all that a resume needs, stays
/// as it was.
#include <hdf5.h>
#include <zlib.h>

#include "fixture.hpp"
#include "format/detail/chunk_reader.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/save/restore.hpp"
#include "tessera/checkpoint/tools/compare.hpp"
#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/checkpoint/tools/convert.hpp"
#include "tessera/checkpoint/tools/verify.hpp"

using namespace tessera;
using namespace tessera::test;
using checkpoint::Compression;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

std::int64_t wrong_after_restore(fs::path const& step, int ranks, std::int64_t value_step,
                                 std::int64_t width = 24) {
  auto const manifest = checkpoint::read_manifest(step);
  zero::PartitionPlan const plan(toy_units(width), ranks, 1);
  std::int64_t wrong = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    RankState state(plan, rank);
    checkpoint::restore_rank(manifest, plan, Rank(rank), state.views());
    wrong += state.wrong(value_step);
  }
  return wrong;
}

/// All that is not shard files.
void expect_same_record(checkpoint::Manifest a, checkpoint::Manifest const& b) {
  EXPECT_EQ(a.run_id, b.run_id);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.zero_stage, b.zero_stage);
  EXPECT_EQ(a.states, b.states);
  EXPECT_EQ(a.trainer_state.dump(), b.trainer_state.dump());
  EXPECT_EQ(a.resolved_config.dump(), b.resolved_config.dump());
  EXPECT_EQ(a.model_config.dump(), b.model_config.dump());
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    a.tensors[i].extents = b.tensors[i].extents;
    EXPECT_EQ(a.tensors[i], b.tensors[i]);
  }
}

std::vector<float> read_through_view(fs::path const& step, std::string const& name) {
  hid_t const file = H5Fopen((step / "view.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT),
              dataset = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
  hid_t const space = H5Dget_space(dataset);
  std::vector<float> values(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
  EXPECT_GE(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
  H5Sclose(space), H5Dclose(dataset), H5Fclose(file);
  return values;
}

struct Case {
  int ranks = 0, per_file = 0;
  Compression compression = Compression::none;
  std::size_t files = 0;  ///< from a checkpoint of five ranks, one file each
};

class Conversions : public ::testing::TestWithParam<Case> {};

TEST_P(Conversions, KeepEveryElement) {
  auto const& c = GetParam();
  ScratchDirectory dir;
  auto const source = save_toy(dir / "run", 30, 5).directory;
  std::string const before = read_file(source / "manifest.json");
  auto const report = checkpoint::convert({.source = source,
                                           .destination = dir / "out",
                                           .ranks = c.ranks,
                                           .ranks_per_file = c.per_file,
                                           .compression = c.compression});
  auto const m = checkpoint::read_manifest(dir / "out");
  EXPECT_EQ(m.shards.size(), c.files);
  EXPECT_EQ(report.files, static_cast<std::int64_t>(c.files));
  EXPECT_EQ(report.bytes, m.shard_bytes());
  expect_same_record(m, checkpoint::read_manifest(source));
  auto const verified = checkpoint::verify(dir / "out");
  EXPECT_TRUE(verified.ok()) << ::testing::PrintToString(verified.problems);
  for (int const ranks : {1, 3, 5}) EXPECT_EQ(wrong_after_restore(dir / "out", ranks, 30), 0);
  EXPECT_EQ(checkpoint::compare({.a = source, .b = dir / "out"}).max(), 0.0);
  checkpoint::consolidate({.checkpoint = source, .output = dir / "a.safetensors"});
  checkpoint::consolidate({.checkpoint = dir / "out", .output = dir / "b.safetensors"});
  EXPECT_EQ(read_file(dir / "a.safetensors"), read_file(dir / "b.safetensors"));
  for (auto const* name :
       {"/fp32/transformer.wte.weight", "/exp_avg_sq/transformer.h.0.attn.c_attn.weight"})
    EXPECT_EQ(read_through_view(dir / "out", name), read_through_view(source, name));
  EXPECT_EQ(read_file(source / "manifest.json"), before);
  EXPECT_TRUE(checkpoint::verify(source).ok());
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, Conversions,
    ::testing::Values(Case{0, 0, Compression::none, 5}, Case{0, 2, Compression::none, 3},
                      Case{0, 99, Compression::none, 1}, Case{0, 0, Compression::shuffle_gzip, 5},
                      Case{0, 3, Compression::shuffle_gzip, 2}, Case{8, 0, Compression::none, 8},
                      Case{3, 3, Compression::shuffle_gzip, 1}, Case{40, 7, Compression::none, 6}));

TEST(Convert, ThereAndBackIsTheSameFiles) {
  ScratchDirectory dir;
  auto const source = save_toy(dir / "run", 7, 4).directory;
  checkpoint::convert({.source = dir / "run", .destination = dir / "pairs", .ranks_per_file = 2});
  checkpoint::convert({.source = dir / "pairs", .destination = dir / "back", .ranks_per_file = 1});
  auto const first = checkpoint::read_manifest(source),
             last = checkpoint::read_manifest(dir / "back");
  EXPECT_EQ(first.tensors, last.tensors);
  EXPECT_EQ(first.shards, last.shards);
  for (auto const& shard : first.shards)
    EXPECT_TRUE(read_file(source / shard.file) == read_file(dir / "back" / shard.file))
        << shard.file;
}

/// Written by the program that knew version 1 only, before shards named their ranks (three of them,
/// toy_units(4), step 5).
TEST(Convert, CheckpointsOfFormatOneAreRead) {
  ScratchDirectory dir;
  fs::copy(fs::path(TESSERA_TEST_DATA) / "checkpoint/data/format-1/step_00000005", dir / "old",
           fs::copy_options::recursive);
  EXPECT_EQ(checkpoint::read_manifest(dir / "old").shards[1].ranks, 0);
  EXPECT_TRUE(checkpoint::verify(dir / "old").ok());
  EXPECT_EQ(wrong_after_restore(dir / "old", 2, 5, 4), 0);
  checkpoint::make_view(dir / "old");
  EXPECT_TRUE(checkpoint::verify(dir / "old").ok());
  checkpoint::convert({.source = dir / "old",
                       .destination = dir / "new",
                       .ranks_per_file = 2,
                       .compression = Compression::shuffle_gzip});
  EXPECT_TRUE(checkpoint::verify(dir / "new").ok());
  EXPECT_EQ(wrong_after_restore(dir / "new", 4, 5, 4), 0);
  EXPECT_EQ(read_through_view(dir / "old", "/exp_avg/transformer.wte.weight"),
            read_through_view(dir / "new", "/exp_avg/transformer.wte.weight"));
}

TEST(Convert, LargeTensorsGoChunkByChunk) {
  ScratchDirectory dir;
  std::int64_t const width = 720;  // c_attn is 6.2 MB: several chunks, the last one partly filled
  auto const source = save_toy(dir / "run", 3, 2, 0, width).directory;
  auto const report = checkpoint::convert({.source = source,
                                           .destination = dir / "small",
                                           .ranks_per_file = 2,
                                           .compression = Compression::shuffle_gzip,
                                           .level = 1});
  EXPECT_LT(report.bytes, report.source_bytes * 7 / 10);
  EXPECT_GT(checkpoint::read_manifest(dir / "small")
                .find("transformer.h.0.attn.c_attn.weight")
                ->extents[0]
                .states[0]
                .chunks.size(),
            1u);
  EXPECT_TRUE(checkpoint::verify(dir / "small").ok());
  EXPECT_EQ(wrong_after_restore(dir / "small", 3, 3, width), 0);
  EXPECT_EQ(read_through_view(dir / "small", "/exp_avg/transformer.h.0.attn.c_attn.weight"),
            read_through_view(source, "/exp_avg/transformer.h.0.attn.c_attn.weight"));
  // and out of the compressed one again, in other parts
  checkpoint::convert({.source = dir / "small", .destination = dir / "plain", .ranks = 3});
  EXPECT_EQ(wrong_after_restore(dir / "plain", 2, 3, width), 0);
}

TEST(Convert, PartsThatBecameOneAreNotTornApart) {
  ScratchDirectory dir;
  save_toy(dir / "run", 3, 4);
  checkpoint::convert({.source = dir / "run",
                       .destination = dir / "small",
                       .ranks_per_file = 2,
                       .compression = Compression::shuffle_gzip});
  EXPECT_THAT(message_of<DataError>([&] {
                checkpoint::convert(
                    {.source = dir / "small", .destination = dir / "out", .ranks_per_file = 1});
              }),
              AllOf(HasSubstr("cannot be told apart"), HasSubstr("--ranks 4")));
  EXPECT_FALSE(fs::exists(dir / "out"));
}

TEST(Convert, NothingIsReplacedAndAFailureLeavesNothing) {
  ScratchDirectory dir;
  auto const source = save_toy(dir / "run", 3, 2).directory;
  EXPECT_THAT(message_of<UsageError>(
                  [&] { checkpoint::convert({.source = source, .destination = source}); }),
              HasSubstr("exists already"));
  fs::create_symlink(dir / "nowhere", dir / "link");
  EXPECT_THAT(message_of<UsageError>(
                  [&] { checkpoint::convert({.source = source, .destination = dir / "link"}); }),
              HasSubstr("exists already"));
  EXPECT_THAT(message_of<UsageError>([&] {
                checkpoint::convert({.source = source, .destination = dir / "x", .level = 10});
              }),
              HasSubstr("levels 1"));
  auto const m = checkpoint::read_manifest(source);
  flip_bit(m.shard_path(1), m.tensors[0].extents[1].states[2].file_offset);
  for (auto const compression : {Compression::none, Compression::shuffle_gzip})
    EXPECT_THAT(
        message_of<DataError>([&] {
          checkpoint::convert(
              {.source = source, .destination = dir / "new/deep/x", .compression = compression});
        }),
        HasSubstr("exp_avg_sq of tensor transformer.wte.weight"));
  EXPECT_TRUE(fs::is_empty(dir / "new/deep"));
}

class CompressedDamage : public ::testing::Test {
 protected:
  CompressedDamage() {
    save_toy(dir / "run", 20, 2);
    checkpoint::convert({.source = dir / "run",
                         .destination = dir / "step",
                         .compression = Compression::shuffle_gzip});
    m = checkpoint::read_manifest(dir / "step");
  }
  std::string restore_error() {
    return message_of<DataError>([&] { wrong_after_restore(dir / "step", 1, 20); });
  }
  /// A complete new chunk in the place of an extent's only one; the manifest knows its size.
  void replace_chunk(std::vector<char> const& chunk) {
    auto& place = m.tensors[0].extents[0].states[0].chunks[0];
    place.offset = static_cast<std::int64_t>(fs::file_size(m.shard_path(0)));
    place.bytes = static_cast<std::int64_t>(chunk.size());
    write_file(m.shard_path(0),
               read_file(m.shard_path(0)) + std::string(chunk.begin(), chunk.end()));
    m.shards[0].bytes = static_cast<std::int64_t>(fs::file_size(m.shard_path(0)));
    write_file(dir / "step/manifest.json", checkpoint::manifest_text(m));
  }
  ScratchDirectory dir;
  checkpoint::Manifest m;
};

TEST_F(CompressedDamage, EveryFlippedByteIsFound) {
  for (auto const* name : {"transformer.wte.weight", "scale"})
    for (std::size_t s = 0; s < m.states.size(); ++s) {
      auto const& tensor = *m.find(name);
      auto const place = tensor.extents.back().states[s].chunks.back();
      for (std::int64_t const at :
           {place.offset, place.offset + place.bytes / 2, place.end() - 1}) {
        flip_bit(m.shard_path(tensor.extents.back().shard), at);
        EXPECT_THAT(restore_error(), AllOf(HasSubstr("is damaged"),
                                           HasSubstr(m.states[s] + " of tensor " + tensor.name)));
        auto const report = checkpoint::verify(dir / "step");
        ASSERT_EQ(report.damages, 1);
        EXPECT_EQ(report.found[0].tensor, tensor.name);
        flip_bit(m.shard_path(tensor.extents.back().shard), at);
      }
    }
  EXPECT_TRUE(checkpoint::verify(dir / "step").ok());
}

TEST_F(CompressedDamage, ABombEndsAtTheSizeOfItsChunk) {
  std::string const zeros(std::size_t{16} << 20, '\0');
  uLongf size = compressBound(zeros.size());
  std::vector<char> bomb(size);
  ASSERT_EQ(compress2(reinterpret_cast<Bytef*>(bomb.data()), &size,
                      reinterpret_cast<Bytef const*>(zeros.data()), zeros.size(), 9),
            Z_OK);
  bomb.resize(size);
  ASSERT_LT(size, 20000u);
  std::vector<char> scratch;
  std::vector<float> out(100, 1.0f);
  EXPECT_FALSE(checkpoint::detail::decompress_chunk(bomb, 100, out.data(), 400, scratch));
  EXPECT_LE(scratch.capacity(), 400u);
  bomb.resize(std::min<std::size_t>(
      bomb.size(), static_cast<std::size_t>(
                       checkpoint::detail::max_stored_bytes(m.tensors[0].extents[0].numel))));
  replace_chunk(bomb);
  EXPECT_THAT(restore_error(), HasSubstr("is no compressed chunk of its elements"));
}

TEST_F(CompressedDamage, ChunksShorterThanTheirElementsAreRefused) {
  std::vector<float> const few(10, 1.0f);
  std::vector<char> chunk;
  checkpoint::detail::compress_chunk(few.data(), 10, 10, 4, chunk);
  replace_chunk(chunk);
  EXPECT_THAT(restore_error(), HasSubstr("is no compressed chunk of its elements"));
}

}  // namespace
