/// Saves that are killed and file systems that are full: the previous checkpoint stays complete.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "crash_points.hpp"
#include "fixture.hpp"
#include "processes.hpp"
#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/save/background_saver.hpp"
#include "tessera/checkpoint/save/restore.hpp"
#include "tessera/checkpoint/tools/verify.hpp"
#include "tessera/comm/compose/host_collectives.hpp"

using namespace tessera;
using namespace tessera::test;
using ::testing::HasSubstr;

namespace {

[[maybe_unused]] bool const scratch_in_memory = (use_memory_for_scratch(), true);

bool holds_step(fs::path const& directory, std::int64_t step) {
  zero::PartitionPlan const plan(toy_units(), 1);
  RankState state(plan, 0);
  checkpoint::restore_rank(checkpoint::read_manifest(directory), plan, first_rank, state.views());
  return state.wrong(step) == 0;
}

/// How a save is made; all from one process.
struct Interruption {
  char const* name;
  void (*save)(fs::path const& run, std::int64_t step);
};
std::ostream& operator<<(std::ostream& out, Interruption const& how) { return out << how.name; }

void save_over_ranks(fs::path const& run, std::int64_t step,
                     checkpoint::BackgroundSaver::Source source) {
  auto const comm = comm::make_loopback();
  auto const units = toy_units();
  zero::PartitionPlan const plan(units, 1);
  RankState state(plan, 0);
  auto request = request_for(run, step, plan, units);
  request.keep = 1;
  checkpoint::BackgroundSaver saver(*comm);
  saver.begin(request, state.fill(step).views(), source);
  if (source == checkpoint::BackgroundSaver::Source::snapshot) state.fill(step + 1000);
  saver.finish();
}

Interruption const interruptions[] = {
    {"waiting",
     [](fs::path const& run, std::int64_t step) {
       save_over_ranks(run, step, checkpoint::BackgroundSaver::Source::in_place);
     }},
    {"in_the_background",
     [](fs::path const& run, std::int64_t step) {
       save_over_ranks(run, step, checkpoint::BackgroundSaver::Source::snapshot);
     }},
    {"three_ranks", [](fs::path const& run, std::int64_t step) { save_toy(run, step, 3, 1); }},
    {"three_ranks_in_two_files",
     [](fs::path const& run, std::int64_t step) {
       save_toy(run, step, 3, 1, 24, starts_at({0, 2}));
     }},
};

class InterruptedSave : public ::testing::TestWithParam<Interruption> {
 protected:
  /// What a restart finds after the kill: a complete checkpoint, nothing else once the leftovers
  /// are removed.
  static std::int64_t look(fs::path const& run) {
    auto const found = checkpoint::find_latest(run);
    if (!found) ADD_FAILURE() << "no checkpoint is left";
    if (!found) return -1;
    EXPECT_TRUE(checkpoint::verify(found->directory).ok());
    EXPECT_TRUE(holds_step(found->directory, found->step));
    checkpoint::remove_unfinished_saves(run);
    EXPECT_GE(checkpoint::find_latest(run)->step, found->step);
    for (auto const& entry : fs::directory_iterator(run))
      EXPECT_TRUE(entry.path().filename() == "latest" ||
                  entry.path().filename().string().size() == 13)
          << entry.path() << " is left";
    return found->step;
  }
};

/// Step 1 is there; the process saves step 2, prunes step 1, and saves step 2 once more over
/// itself.
TEST_P(InterruptedSave, KilledAtAnyCallThereIsACompleteCheckpoint) {
  ScratchDirectory dir;
  GetParam().save(dir / "before", 1);
  int calls = 0;
  auto const run_until = [&](int call) {
    fs::remove_all(dir / "run");
    fs::copy(dir / "before", dir / "run", fs::copy_options::recursive);
    return run_until_call(
        call,
        [&] {
          for (int again = 0; again < 2; ++again) GetParam().save(dir / "run", 2);
        },
        &calls);
  };
  if (run_until(0) == End::not_allowed)
    GTEST_SKIP() << "tracing a child process is not allowed here";
  int const all = calls;
  EXPECT_GT(all, 60);
  EXPECT_EQ(look(dir / "run"), 2);
  CrashPoints const points;
  bool seen[3] = {};
  auto const chosen = points.choose(all);
  for (int const call : chosen) {
    SCOPED_TRACE(concat(GetParam().name, ", killed at call ", call, " of ", all, points.again()));
    run_until(call);
    std::int64_t const step = look(dir / "run");
    ASSERT_TRUE(step == 1 || step == 2);
    seen[step] = true;
  }
  EXPECT_TRUE(seen[1] && seen[2]);
  std::printf("%s: killed at %zu of %d calls\n", GetParam().name, chosen.size(), all);
}

INSTANTIATE_TEST_SUITE_P(Interruptions, InterruptedSave, ::testing::ValuesIn(interruptions),
                         [](auto const& info) { return std::string(info.param.name); });

/// Runs @p body in a process with a tmpfs of its own at @p mount_point; its exit status, or -1
/// where mounting is not allowed.
template <class Body>
int in_small_file_system(fs::path const& mount_point, std::string const& options, Body&& body) {
  pid_t const child = fork();
  if (child == 0) {
    uid_t const user = getuid();
    if (unshare(user == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) != 0) _exit(99);
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) _exit(99);
    if (mount("tmpfs", mount_point.c_str(), "tmpfs", 0, options.c_str()) != 0) _exit(99);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  int const code = WIFEXITED(status) ? WEXITSTATUS(status) : 98;
  return code == 99 ? -1 : code;
}

TEST(Interrupted, TooLittleSpaceIsSaidBeforeWriting) {
  ScratchDirectory dir;
  int const result = in_small_file_system(dir.path(), "size=256k", [&] {
    try {
      save_toy(dir.path(), 1, 2);
    } catch (IoError const& e) {
      std::string const text = e.what();
      bool const told = text.find("the checkpoint of step 1 needs ") != std::string::npos &&
                        text.find("are free") != std::string::npos;
      return told && fs::is_empty(dir.path()) ? 0 : 1;
    }
    return 2;
  });
  if (result < 0)
    GTEST_SKIP() << "mounting a tmpfs is not allowed here; the size limits of the save suite cover "
                    "failing writes";
  EXPECT_EQ(result, 0);
}

TEST(Interrupted, AFullFileSystemAtEveryFileLeavesTheOldCheckpoint) {
  ScratchDirectory dir;
  int const result = in_small_file_system(dir.path(), "size=64m,nr_inodes=64", [&] {
    save_toy(dir.path(), 1, 2);
    int failures = 0;
    // fill the inodes up, then free one more each round: ENOSPC at the directory, the shards, the
    // view, the manifest, `latest`
    std::vector<fs::path> fillers;
    for (int i = 0; i < 64; ++i) {
      fs::path const filler = dir / concat("filler", i);
      int const fd = ::open(filler.c_str(), O_CREAT | O_WRONLY, 0600);
      if (fd < 0) break;
      ::close(fd);
      fillers.push_back(filler);
    }
    while (!fillers.empty()) {
      try {
        save_toy(dir.path(), 2, 2);
        break;
      } catch (IoError const& e) {
        ++failures;
        if (std::string(e.what()).find("No space left on device") == std::string::npos) return 10;
      }
      auto const found = checkpoint::find_latest(dir.path());
      if (!found || found->step > 2 || !holds_step(found->directory, found->step)) return 11;
      if (found->step == 1 && !checkpoint::verify(dir / "step_00000001").ok()) return 12;
      for (auto const& entry : fs::directory_iterator(dir.path()))
        if (entry.path().string().find(".tmp.") != std::string::npos) return 13;
      fs::remove(fillers.back());
      fillers.pop_back();
    }
    return failures < 4 ? 14 : holds_step(dir / "step_00000002", 2) ? 0 : 15;
  });
  if (result < 0)
    GTEST_SKIP() << "mounting a tmpfs is not allowed here; the size limits of the save suite cover "
                    "failing writes";
  EXPECT_EQ(result, 0);
}

TEST(Interrupted, AReadOnlyPlaceIsNamed) {
  ScratchDirectory dir;
  write_file(dir / "file", "x");
  EXPECT_THAT(message_of<IoError>([&] { save_toy(dir / "file/checkpoints", 1, 1); }),
              HasSubstr("file/checkpoints"));
}

}  // namespace
