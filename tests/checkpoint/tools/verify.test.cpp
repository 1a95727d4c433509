/// What `verify` says of damaged checkpoints: every damage, each once.
#include "tessera/checkpoint/tools/verify.hpp"

#include <hdf5.h>

#include "fixture.hpp"
#include "large_checkpoint.hpp"

using namespace tessera;
using namespace tessera::test;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

checkpoint::VerifyOptions const quick{.depth = checkpoint::VerifyOptions::Depth::structure};

class Verify : public ::testing::Test {
 protected:
  Verify()
      : step(save_toy(dir.path(), 20, 3).directory), manifest(checkpoint::read_manifest(step)) {}
  checkpoint::ExtentRecord const& extent(std::size_t tensor, int shard) const {
    for (auto const& p : manifest.tensors[tensor].extents)
      if (p.shard == shard) return p;
    throw std::runtime_error("no such extent");
  }
  /// The last tensor that ends in this shard.
  checkpoint::TensorRecord const& of_shard(int shard) const {
    auto const it = std::find_if(manifest.tensors.rbegin(), manifest.tensors.rend(),
                                 [&](auto const& t) { return t.extents.back().shard == shard; });
    return *it;
  }
  ScratchDirectory dir;
  fs::path step;
  checkpoint::Manifest manifest;
};

TEST_F(Verify, AllDamagesAreListedWithTheirPlaces) {
  std::int64_t const first = extent(0, 0).states[0].file_offset,
                     second = of_shard(1).extents.back().states[2].file_offset;
  flip_bit(step / "shard_00000.h5", first + 8);
  flip_bit(step / "shard_00001.h5", second);
  fs::remove(step / "shard_00002.h5");
  auto const report = checkpoint::verify(step);
  EXPECT_EQ(report.damages, 3);
  ASSERT_EQ(report.found.size(), 3u);
  EXPECT_EQ(report.found[0].tensor, "transformer.wte.weight");
  EXPECT_EQ(report.found[0].state, "fp32");
  EXPECT_EQ(report.found[0].first_byte, first);
  EXPECT_EQ(report.found[0].end_byte, first + extent(0, 0).numel * 4);
  EXPECT_EQ(report.found[0].file, (step / "shard_00000.h5").string());
  EXPECT_EQ(report.found[1].tensor, of_shard(1).name);
  EXPECT_EQ(report.found[1].state, "exp_avg_sq");
  EXPECT_EQ(report.found[1].first_byte, second);
  EXPECT_THAT(report.found[2].text,
              AllOf(HasSubstr("shard_00002.h5 is missing"), HasSubstr("it holds")));
  auto const structure = checkpoint::verify(step, quick);
  EXPECT_EQ(structure.damages, 1) << "flipped elements are not looked at";
  EXPECT_EQ(structure.bytes, 0);
}

TEST_F(Verify, ATruncatedShardIsReadAsFarAsItGoes) {
  std::int64_t const cut = extent(0, 0).states[1].file_offset + 100;
  flip_bit(step / "shard_00000.h5", extent(0, 0).states[0].file_offset);
  fs::resize_file(step / "shard_00000.h5", static_cast<std::uintmax_t>(cut));
  auto const report = checkpoint::verify(step);
  EXPECT_THAT(report.problems,
              Contains(AllOf(HasSubstr("shard_00000.h5 has"), HasSubstr("truncated"))));
  EXPECT_THAT(report.problems, Contains(AllOf(HasSubstr("fp32 of tensor transformer.wte.weight"),
                                              HasSubstr("checksum"))));
  EXPECT_THAT(report.problems, Contains(AllOf(HasSubstr("exp_avg of tensor transformer.wte.weight"),
                                              HasSubstr(concat("bytes ", cut, " to ")),
                                              HasSubstr("after the end"))));
  auto const structure = checkpoint::verify(step, quick);
  EXPECT_GT(structure.damages, 1);
  EXPECT_LT(structure.damages, report.damages);
}

TEST_F(Verify, GrownAndSwappedShardsAreNamed) {
  fs::rename(step / "shard_00000.h5", dir / "a");
  fs::rename(step / "shard_00001.h5", step / "shard_00000.h5");
  fs::rename(dir / "a", step / "shard_00001.h5");
  write_file(step / "shard_00002.h5", read_file(step / "shard_00002.h5") + "x");
  auto const report = checkpoint::verify(step);
  for (auto const* name : {"shard_00000.h5", "shard_00001.h5", "shard_00002.h5"})
    EXPECT_THAT(report.problems, Contains(HasSubstr(name)));
  EXPECT_THAT(report.problems,
              Contains(AllOf(HasSubstr("shard_00002.h5"), HasSubstr("it is changed"))));
}

TEST_F(Verify, TheReportIsBounded) {
  for (int i = 0; i < 3; ++i) {
    auto const path = step / concat("shard_0000", i, ".h5");
    write_file(path, std::string(fs::file_size(path), 'x'));
  }
  auto const report = checkpoint::verify(step, {.max_reported = 4});
  EXPECT_EQ(report.found.size(), 4u);
  EXPECT_GT(report.damages, 20);
  EXPECT_EQ(report.problems.back(), concat("and ", report.damages - 4, " more"));
}

TEST_F(Verify, NeighboringDamagedChunksAreOneRange) {
  ScratchDirectory large;
  auto const saved = save_large(large.path(), 1, {toy_units(80000)[0]});  // wte has 32 MB
  auto const m = checkpoint::read_manifest(saved);
  auto const& location = m.tensors[0].extents[0].states[0];
  ASSERT_GT(location.xxh3.size(), 4u);
  for (int chunk : {1, 2, 4})
    flip_bit(saved / "shard_00000.h5", location.file_offset + chunk * m.checksum_chunk + 5);
  auto const report = checkpoint::verify(saved);
  ASSERT_EQ(report.found.size(), 2u);
  EXPECT_EQ(report.found[0].first_byte, location.file_offset + m.checksum_chunk);
  EXPECT_EQ(report.found[0].end_byte, location.file_offset + 3 * m.checksum_chunk);
  EXPECT_EQ(report.found[1].first_byte, location.file_offset + 4 * m.checksum_chunk);
}

/// Opens a file with HDF5 for writing and closes it again.
template <class Change>
void change_hdf5(fs::path const& path, Change const& change) {
  hid_t const file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  change(file);
  ASSERT_GE(H5Fclose(file), 0);
}

TEST_F(Verify, LinksOutOfAShardAreRefused) {
  change_hdf5(step / "shard_00001.h5", [](hid_t file) {
    H5Lcreate_external("/etc/passwd", "/x", file, "/fp32/more", H5P_DEFAULT, H5P_DEFAULT);
  });
  manifest.shards[1].bytes = static_cast<std::int64_t>(fs::file_size(step / "shard_00001.h5"));
  write_file(step / "manifest.json", manifest_text(manifest));
  EXPECT_THAT(
      checkpoint::verify(step, quick).problems,
      Contains(AllOf(HasSubstr("shard_00001.h5"), HasSubstr("external HDF5 link /fp32/more"))));
  change_hdf5(step / "view.h5", [](hid_t file) {
    H5Lcreate_external("../other.h5", "/x", file, "/more", H5P_DEFAULT, H5P_DEFAULT);
  });
  EXPECT_THAT(checkpoint::verify(step, quick).problems,
              Contains(AllOf(HasSubstr("view.h5"), HasSubstr("external HDF5 link /more"))));
}

TEST_F(Verify, AViewOfOtherFilesIsRefused) {
  for (auto const* source : {"/etc/shard_00000.h5", "../shard_00000.h5", "shard_00009.h5"}) {
    change_hdf5(step / "view.h5", [&](hid_t file) {
      H5Ldelete(file, "/fp32/scale", H5P_DEFAULT);
      hsize_t const one[] = {1};
      hid_t const space = H5Screate_simple(1, one, nullptr), create = H5Pcreate(H5P_DATASET_CREATE);
      H5Pset_virtual(create, space, source, "/fp32/scale", space);
      H5Dclose(
          H5Dcreate2(file, "/fp32/scale", H5T_IEEE_F32LE, space, H5P_DEFAULT, create, H5P_DEFAULT));
      H5Pclose(create);
      H5Sclose(space);
    });
    EXPECT_THAT(checkpoint::verify(step, quick).problems,
                ElementsAre(AllOf(HasSubstr("view.h5"), HasSubstr(source),
                                  HasSubstr("no shard of this checkpoint"))));
  }
  fs::remove(step / "view.h5");
  fs::create_symlink("/etc/hostname", step / "view.h5");
  EXPECT_THAT(checkpoint::verify(step, quick).problems,
              ElementsAre(HasSubstr("not a regular file")));
}

/// Structures of shards at random damaged: HDF5 may crash on them, this program not.
TEST_F(Verify, DamagedStructuresNeverEndTheProgram) {
  std::string const good = read_file(step / "shard_00001.h5");
  std::uint64_t seed = 1;
  auto const random = [&](std::uint64_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33u) % n;
  };
  for (int round = 0; round < 60; ++round) {
    std::string bad = good;
    for (int i = 0; i < 8; ++i) bad[random(8192)] = static_cast<char>(random(256));
    write_file(step / "shard_00001.h5", bad);
    auto const report = checkpoint::verify(step, quick);
    for (auto const& problem : report.problems) EXPECT_THAT(problem, HasSubstr("shard_00001.h5"));
  }
}

/// Manifests before they recorded it: the values decide.
TEST(VerifyValues, AreReadWithoutARecord) {
  ScratchDirectory const dir;
  save_not_a_number(dir.path(), 7);
  auto const step = dir / "step_00000007";
  auto manifest = checkpoint::read_manifest(step);
  manifest.nonfinite.reset();
  write_file(manifest.file(), checkpoint::manifest_text(manifest));
  EXPECT_FALSE(checkpoint::read_manifest(step).nonfinite);
  EXPECT_TRUE(
      checkpoint::verify(step, {.depth = checkpoint::VerifyOptions::Depth::structure}).ok());
  auto const report = checkpoint::verify(step);
  ASSERT_EQ(report.damages, 1);
  EXPECT_THAT(report.problems[0], HasSubstr("fp32 of transformer.wte.weight (1 value)"));
}

}  // namespace
