/// What the offline tools say of checkpoints: every damage at once, what differs, what goes.
#include <hdf5.h>

#include <cmath>

#include "fixture.hpp"
#include "processes.hpp"
#include "tessera/checkpoint/tools/compare.hpp"
#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/checkpoint/tools/convert.hpp"
#include "tessera/checkpoint/tools/prune.hpp"
#include "tessera/checkpoint/tools/verify.hpp"

using namespace tessera;
using namespace tessera::test;
using checkpoint::PruneOptions;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace {

checkpoint::VerifyOptions const quick{.depth = checkpoint::VerifyOptions::Depth::structure};

void set_age(fs::path const& path, std::chrono::seconds age) {
  for (auto const& entry : fs::recursive_directory_iterator(path))
    fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - age);
  fs::last_write_time(path, fs::file_time_type::clock::now() - age);
}

/// A checkpoint that is made without holding it.
fs::path save_large(fs::path const& checkpoints, int ranks,
                    std::vector<memory::UnitSpec> const& units) {
  zero::PartitionPlan const plan(units, ranks);
  checkpoint::StreamedStates states{{"fp32", "exp_avg", "exp_avg_sq"}, {}};
  states.read = [](std::string const& state, zero::ShardExtent const& extent, std::int64_t first,
                   std::int64_t numel, float* out) {
    for (std::int64_t i = 0; i < numel; ++i)
      out[i] = static_cast<float>((extent.parameter_offset.value() + first + i) % 9973) +
               static_cast<float>(state.size());
  };
  return checkpoint::save_all(request_for(checkpoints, 1, plan, units), states).directory;
}

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
  auto const saved = save_large(large.path(), 1, {toy_units(80000)[0]});  // wte alone has 32 MB
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

// ---- diff

checkpoint::CompareReport compare(fs::path const& a, fs::path const& b) {
  return checkpoint::compare({.a = a, .b = b});
}

TEST(Compare, TheSameStateIsTheSameOnAnyRanks) {
  ScratchDirectory one, three;
  save_toy(one.path(), 5, 1);
  save_toy(three.path(), 5, 3);
  auto const report = compare(one.path(), three.path());
  EXPECT_EQ(report.tensors.size(), 8u * 3u);
  EXPECT_TRUE(report.same_tensors());
  EXPECT_EQ(report.max(), 0);
  for (auto const& tensor : report.tensors) EXPECT_EQ(tensor.different, 0);
}

TEST(Compare, DeviationsAreThoseOfTheElements) {
  ScratchDirectory a, b;
  save_toy(a.path(), 5, 2);
  save_toy(b.path(), 6, 3);
  auto const report = compare(a.path(), b.path());
  ASSERT_EQ(report.tensors.size(), 24u);
  for (auto const& tensor : report.tensors) {
    double max = 0, sum = 0, squares = 0, norm = 0;
    for (std::int64_t i = 0; i < tensor.numel; ++i) {
      double const x = element(tensor.name, tensor.state, i, 5),
                   d = std::abs(x - element(tensor.name, tensor.state, i, 6));
      max = std::max(max, d), sum += d, squares += d * d, norm += x * x;
    }
    EXPECT_EQ(tensor.max, max);
    EXPECT_NEAR(tensor.mean, sum / static_cast<double>(tensor.numel), 1e-12 * sum);
    EXPECT_NEAR(tensor.relative, std::sqrt(squares / norm), 1e-12);
    EXPECT_EQ(tensor.different, tensor.numel);
  }
}

TEST(Compare, AModelWrittenFromACheckpointIsTheSame) {
  ScratchDirectory dir;
  save_toy(dir / "run", 5, 2);
  checkpoint::consolidate({.checkpoint = dir / "run", .output = dir / "model"});
  checkpoint::consolidate(
      {.checkpoint = dir / "run", .output = dir / "small.safetensors", .dtype = Dtype::bf16});
  auto const same = compare(dir / "run", dir / "model");
  EXPECT_EQ(same.max(), 0);
  EXPECT_EQ(same.tensors.size(), 8u);
  EXPECT_THAT(same.a.only_states, ElementsAre("exp_avg", "exp_avg_sq"));
  auto const rounded = compare(dir / "run", dir / "small.safetensors");
  EXPECT_GT(rounded.max(), 0);
  for (auto const& tensor : rounded.tensors)
    EXPECT_LE(tensor.relative, std::ldexp(1.0, -8)) << tensor.name;
}

TEST(Compare, OtherTensorsAndShapesAreListed) {
  ScratchDirectory a, b;
  save_toy(a.path(), 5, 1);
  save_toy(b.path(), 5, 1, 0, 16);
  auto report = compare(a.path(), b.path());
  EXPECT_FALSE(report.same_tensors());
  EXPECT_EQ(report.other_shapes.size(), 7u);
  EXPECT_EQ(report.other_shapes[0].name, "transformer.wte.weight");
  EXPECT_THAT(report.other_shapes[0].b, ElementsAre(101, 16));
  EXPECT_EQ(report.tensors.size(), 3u) << "scale has one shape";
  EXPECT_THAT(message_of<UsageError>([&] {
                checkpoint::compare({.a = a.path(), .b = b.path(), .states = {"momentum"}});
              }),
              HasSubstr("has no state 'momentum'"));
  flip_bit(a / "step_00000005/shard_00000.h5", checkpoint::read_manifest(a / "step_00000005")
                                                   .find("scale")
                                                   ->extents[0]
                                                   .states[0]
                                                   .file_offset);
  EXPECT_THAT(message_of<DataError>([&] { compare(a.path(), a.path()); }), HasSubstr("is damaged"));
}

// ---- prune

class Prune : public ::testing::Test {
 protected:
  Prune() {
    for (int step : {10, 20, 30, 40}) save_toy(dir.path(), step, 2);
  }
  std::vector<std::string> left() const {
    std::vector<std::string> names;
    for (auto const& entry : fs::directory_iterator(dir.path()))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  ScratchDirectory dir;
};

TEST_F(Prune, TheNewestAndTheLatestStay) {
  write_file(dir / "latest", "step_00000020\n");
  auto verdicts = checkpoint::prune(
      {.checkpoints = dir.path(), .keep = 1, .mode = PruneOptions::Mode::dry_run});
  EXPECT_EQ(left().size(), 5u);
  EXPECT_EQ(
      std::count_if(verdicts.begin(), verdicts.end(), [](auto const& v) { return v.removed; }), 2);
  checkpoint::prune({.checkpoints = dir.path(), .keep = 1});
  EXPECT_THAT(left(), ElementsAre("latest", "step_00000020", "step_00000040"));
  EXPECT_THAT(
      message_of<UsageError>([&] { checkpoint::prune({.checkpoints = dir.path(), .keep = 0}); }),
      HasSubstr("keep is 0"));
}

TEST_F(Prune, DamagedOnesDoNotCountAndStayUnlessAsked) {
  fs::resize_file(dir / "step_00000040/shard_00000.h5", 100);
  fs::remove(dir / "step_00000010/manifest.json");
  checkpoint::prune({.checkpoints = dir.path(), .keep = 1});
  EXPECT_THAT(left(), ElementsAre("latest", "step_00000010", "step_00000030", "step_00000040"));
  auto const verdicts = checkpoint::prune(
      {.checkpoints = dir.path(), .keep = 1, .damaged = PruneOptions::Damaged::remove});
  EXPECT_THAT(left(), ElementsAre("latest", "step_00000030", "step_00000040"))
      << "`latest` names the last one";
  EXPECT_THAT(verdicts.back().why, AllOf(HasSubstr("damaged"), HasSubstr("`latest` names it")));
}

TEST_F(Prune, WithoutACompleteOneTheNewestDamagedStays) {
  fs::remove(dir / "latest");
  for (int step : {10, 20, 30, 40})
    fs::remove(dir / concat("step_000000", step, "/shard_00001.h5"));
  checkpoint::prune(
      {.checkpoints = dir.path(), .keep = 1, .damaged = PruneOptions::Damaged::remove});
  EXPECT_THAT(left(), ElementsAre("step_00000040"));
}

TEST_F(Prune, ChecksumsDecideWhenAsked) {
  auto const m = checkpoint::read_manifest(dir / "step_00000040");
  flip_bit(m.shard_path(0), m.tensors[0].extents[0].states[1].file_offset);
  write_file(dir / "latest", "step_00000010\n");
  checkpoint::prune(
      {.checkpoints = dir.path(), .keep = 1, .check = PruneOptions::Check::checksums});
  EXPECT_THAT(left(), ElementsAre("latest", "step_00000010", "step_00000030", "step_00000040"));
}

/// Of two ranks; one value of the first is not a number.
void save_not_a_number(fs::path const& checkpoints, std::int64_t step) {
  auto const units = toy_units();
  zero::PartitionPlan const plan(units, 2);
  RankState first(plan, 0), second(plan, 1);
  first.fill(step).memory(0)[0] = std::nanf("");
  auto request = request_for(checkpoints, step, plan, units);
  request.nonfinite = checkpoint::NonFiniteState::record;
  checkpoint::save_all(request, {first.views(), second.fill(step).views()});
}

TEST_F(Prune, OnesThatAreNotFiniteAreDamagedWhenReadAndNeverPushOutOthers) {
  save_not_a_number(dir.path(), 50);
  checkpoint::prune(
      {.checkpoints = dir.path(), .keep = 1, .check = PruneOptions::Check::checksums});
  EXPECT_THAT(left(), ElementsAre("latest", "step_00000040", "step_00000050"));
}

TEST_F(Prune, OneWithoutProgressStaysOnlyAsTheNewest) {
  auto const units = toy_units();
  zero::PartitionPlan const plan(units, 1);
  for (int step : {41, 42}) {
    RankState state(plan, 0);
    auto request = request_for(dir.path(), step, plan, units);
    request.skipped_in_a_row = step - 40;
    checkpoint::save_all(request, {state.fill(step).views()});
  }
  checkpoint::prune({.checkpoints = dir.path(), .keep = 2});
  EXPECT_THAT(left(), ElementsAre("latest", "step_00000030", "step_00000040", "step_00000042"));
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

TEST_F(Prune, OnlyOldOnesGo) {
  set_age(dir / "step_00000010", std::chrono::hours(50));
  set_age(dir / "step_00000040", std::chrono::hours(50));
  checkpoint::prune({.checkpoints = dir.path(), .keep = 1, .older_than_seconds = 48 * 3600});
  EXPECT_THAT(left(), ElementsAre("latest", "step_00000020", "step_00000030", "step_00000040"));
}

TEST_F(Prune, InterruptedSavesGoOnlyWhenIdle) {
  fs::create_directory(dir / "step_00000050.tmp.1");
  write_file(dir / "step_00000050.tmp.1/shard_00000.h5", "half");
  fs::create_directory(dir / ".trash.step_00000005.1");
  fs::rename(dir / "step_00000030", dir / "step_00000030.tmp.1");
  PruneOptions const options{
      .checkpoints = dir.path(), .keep = 9, .damaged = PruneOptions::Damaged::remove};
  auto const verdicts = checkpoint::prune(options);
  EXPECT_EQ(left().size(), 7u);
  EXPECT_EQ(std::count_if(
                verdicts.begin(), verdicts.end(),
                [](auto const& v) { return v.why.find("save in progress") != std::string::npos; }),
            2);
  for (auto const* name : {"step_00000050.tmp.1", ".trash.step_00000005.1", "step_00000030.tmp.1"})
    set_age(dir / name, std::chrono::hours(2));
  checkpoint::prune({.checkpoints = dir.path(), .keep = 9});
  EXPECT_EQ(left().size(), 7u) << "listed, not removed";
  checkpoint::prune(options);
  EXPECT_THAT(left(), ElementsAre("latest", "step_00000010", "step_00000020", "step_00000030.tmp.1",
                                  "step_00000040"))
      << "a complete save is never removed";
}

// ---- memory

TEST(Memory, OfToolsIsBoundedWhateverTheModel) {
  ScratchDirectory dir;
  auto const units = toy_units(40000);  // 4.7 million elements in the embeddings
  std::vector<memory::UnitSpec> large = {units[0]};
  for (int i = 1; i < 6; ++i) {
    large.push_back(units[0]);
    for (auto& parameter : large.back().parameters)
      parameter.name += concat(".", i), parameter.aliases.clear();
  }
  auto const one = save_large(dir / "one", 1, large), three = save_large(dir / "three", 3, large);
  ASSERT_GT(fs::file_size(one / "shard_00000.h5"), std::uintmax_t{256} << 20);
  EXPECT_LT(peak_mib([&] { EXPECT_TRUE(checkpoint::verify(one).ok()); }), 256);
  EXPECT_LT(peak_mib([&] { EXPECT_EQ(compare(one, three).max(), 0); }), 256);
  EXPECT_LT(
      peak_mib([&] {
        checkpoint::convert({.source = three, .destination = dir / "plain", .ranks_per_file = 3});
      }),
      256);
  EXPECT_LT(peak_mib([&] {
              checkpoint::convert({.source = three,
                                   .destination = dir / "packed",
                                   .ranks_per_file = 3,
                                   .compression = checkpoint::Compression::shuffle_gzip,
                                   .level = 1});
            }),
            256);
}

}  // namespace
