/// Which checkpoints `prune` removes, and which it keeps.
#include "tessera/checkpoint/tools/prune.hpp"

#include "fixture.hpp"

using namespace tessera;
using namespace tessera::test;
using checkpoint::PruneOptions;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

void set_age(fs::path const& path, std::chrono::seconds age) {
  for (auto const& entry : fs::recursive_directory_iterator(path))
    fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - age);
  fs::last_write_time(path, fs::file_time_type::clock::now() - age);
}

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

}  // namespace
