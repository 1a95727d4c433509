/// Saves that are killed and file systems that are full: the checkpoint before stays whole.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "fixture.hpp"
#include "processes.hpp"
#include "tessera/checkpoint/directory.hpp"
#include "tessera/checkpoint/restore.hpp"

using namespace tessera;
using namespace tessera::test;
using ::testing::HasSubstr;

namespace {

bool holds_step(fs::path const& directory, std::int64_t step) {
  zero::PartitionPlan const plan(toy_units(), 1);
  RankState state(plan, 0);
  checkpoint::restore_rank(checkpoint::read_manifest(directory), plan, 0, state.views());
  return state.wrong(step) == 0;
}

/// Step 1 is there; the process saves step 2, prunes step 1, and saves step 2 once more over itself.
TEST(Interrupted, KilledAtAnyCallThereIsAWholeCheckpoint) {
  ScratchDirectory dir;
  save_toy(dir / "before", 1, 1);
  bool seen[3] = {};
  for (int call = 1;; ++call) {
    fs::path const run = dir / "run";
    fs::remove_all(run);
    fs::copy(dir / "before", run, fs::copy_options::recursive);
    End const end = run_until_call(call, [&] {
      for (int again = 0; again < 2; ++again) save_toy(run, 2, 1, 1);
    });
    if (end == End::not_allowed) GTEST_SKIP() << "tracing a child process is not allowed here";
    auto const found = checkpoint::find_latest(run);
    ASSERT_TRUE(found) << "killed at call " << call;
    ASSERT_TRUE(found->step == 1 || found->step == 2);
    seen[found->step] = true;
    EXPECT_TRUE(checkpoint::verify(found->directory).ok()) << "killed at call " << call;
    EXPECT_TRUE(holds_step(found->directory, found->step)) << "killed at call " << call;
    checkpoint::remove_abandoned(run);
    EXPECT_GE(checkpoint::find_latest(run)->step, found->step);
    for (auto const& entry : fs::directory_iterator(run))
      EXPECT_TRUE(entry.path().filename() == "latest" || entry.path().filename().string().size() == 13)
          << entry.path() << " is left from the kill at call " << call;
    if (end == End::finished) {
      EXPECT_GT(call, 30);
      break;
    }
  }
  EXPECT_TRUE(seen[1] && seen[2]);
}

/// Runs @p body in a process with a tmpfs of its own at @p mount_point; its exit status, or -1 where mounting is not allowed.
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
      bool const told = text.find("the checkpoint of step 1 needs ") != std::string::npos && text.find("are free") != std::string::npos;
      return told && fs::is_empty(dir.path()) ? 0 : 1;
    }
    return 2;
  });
  if (result < 0) GTEST_SKIP() << "mounting a tmpfs is not allowed here; the size limits of the save suite cover failing writes";
  EXPECT_EQ(result, 0);
}

TEST(Interrupted, AFullFileSystemAtEveryFileLeavesTheOldCheckpoint) {
  ScratchDirectory dir;
  int const result = in_small_file_system(dir.path(), "size=64m,nr_inodes=64", [&] {
    save_toy(dir.path(), 1, 2);
    int failures = 0;
    // fill the inodes up, then free one more each round: ENOSPC at the directory, the shards, the view, the manifest, `latest`
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
  if (result < 0) GTEST_SKIP() << "mounting a tmpfs is not allowed here; the size limits of the save suite cover failing writes";
  EXPECT_EQ(result, 0);
}

TEST(Interrupted, AReadOnlyPlaceIsNamed) {
  ScratchDirectory dir;
  write_file(dir / "file", "x");
  EXPECT_THAT(message_of<IoError>([&] { save_toy(dir / "file/checkpoints", 1, 1); }), HasSubstr("file/checkpoints"));
}

}  // namespace
