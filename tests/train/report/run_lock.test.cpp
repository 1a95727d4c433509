/// One job at a time: who is alive, who is gone, and who of several takes over.
#include "tessera/train/report/run_lock.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>
#include <vector>

#include "becomes_true.hpp"
#include "tessera/core/config_tree.hpp"

using namespace tessera;
using ::testing::AllOf;
using ::testing::HasSubstr;
using train::DirectoryInUse;
using train::RunLock;

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr RunLock::Timing quick{milliseconds(20), milliseconds(200)};

/// The owner of a lock on another host: it counts in its entry, in place and with one write, so
/// that a reader never meets a part of it.
class Heartbeat {
 public:
  Heartbeat(fs::path const& file, ConfigTree const& entry)
      : thread_([this, file, entry] {
          std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
          for (int beat = 0; !ending_; ++beat) {
            ConfigTree const counted = ConfigTree(entry).set("beat", fmt::format("{:012}", beat));
            out.seekp(0) << counted.dump() << std::flush;
            std::this_thread::sleep_for(quick.beat);
          }
        }) {}
  ~Heartbeat() {
    ending_ = true;
    thread_.join();
  }
  Heartbeat(Heartbeat const&) = delete;
  Heartbeat& operator=(Heartbeat const&) = delete;

 private:
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

class Lock : public ::testing::Test {
 protected:
  Lock() : directory(fs::temp_directory_path() / concat("tessera-lock-", ::getpid())) {
    fs::remove_all(directory);
    fs::create_directories(directory);
  }
  ~Lock() override { fs::remove_all(directory); }

  fs::path file() const { return directory / ".lock"; }
  std::string text() const {
    std::ifstream in(file());
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  void write(std::string const& content) const { std::ofstream(file()) << content; }
  /// What this process writes, with one field changed.
  ConfigTree entry_with(std::string const& key, ConfigTree value) const {
    {
      RunLock const lock(directory, quick);
      entry = ConfigTree::parse(text(), "lock");
    }
    return entry.set("id", "another").set(key, std::move(value));
  }
  std::string refusal(milliseconds patience = quick.patience) const {
    try {
      RunLock const lock(directory, {quick.beat, patience});
    } catch (DirectoryInUse const& e) {
      return e.what();
    }
    ADD_FAILURE() << "the directory was not in use";
    return "";
  }
  /// Who was replaced.
  std::string taken_over() const {
    RunLock const lock(directory, quick);
    EXPECT_TRUE(lock.held());
    return lock.replaced();
  }

  fs::path directory;
  mutable ConfigTree entry;
};

/// What a program that only looks sees: a living owner, one that was killed, none.
TEST_F(Lock, ShowsItsOwner) {
  EXPECT_FALSE(train::find_owner(directory, milliseconds(0)));
  {
    RunLock const lock(directory, quick);
    auto const owner = train::find_owner(directory, milliseconds(0));
    ASSERT_TRUE(owner);
    EXPECT_TRUE(owner->alive);
    EXPECT_THAT(owner->description, HasSubstr(concat("process ", ::getpid())));
  }
  EXPECT_FALSE(train::find_owner(directory, milliseconds(0)));
  ConfigTree const elsewhere = entry_with("host", "elsewhere");
  write(elsewhere.dump());
  auto const silent = train::find_owner(directory, milliseconds(100));
  ASSERT_TRUE(silent);
  EXPECT_FALSE(silent->alive);
  Heartbeat const heartbeat(file(), elsewhere);
  auto const beating = train::find_owner(directory, milliseconds(20000));
  ASSERT_TRUE(beating);
  EXPECT_TRUE(beating->alive);
}

TEST_F(Lock, ASecondJobIsRefusedUntilTheFirstHasEnded) {
  {
    RunLock const first(directory, quick);
    EXPECT_EQ(first.replaced(), "");
    EXPECT_THAT(refusal(), AllOf(HasSubstr(directory.string()),
                                 HasSubstr(concat("process ", ::getpid(), " on host ")),
                                 HasSubstr("started 20")));
    std::string const before = text();
    EXPECT_TRUE(becomes_true([&] { return text() != before; })) << "the lock counts its beats";
    EXPECT_TRUE(first.held());
  }
  EXPECT_FALSE(fs::exists(file()));
  EXPECT_EQ(taken_over(), "");
}

TEST_F(Lock, AnOwnerOnThisHostIsGoneWithItsProcess) {
  pid_t const child = fork();
  if (child == 0) _exit(0);
  siginfo_t ended{};
  waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT);
  // State of a process that has ended and that nobody has waited for
  std::ifstream stat(concat("/proc/", child, "/stat"));
  std::string field;
  for (int i = 0; i < 22; ++i) stat >> field;
  write(entry_with("pid", std::int64_t{child}).set("process_start", field).dump());
  EXPECT_THAT(taken_over(), HasSubstr(concat("process ", child)));
  waitpid(child, nullptr, 0);
  write(entry_with("pid", std::int64_t{child}).dump());
  EXPECT_THAT(taken_over(), HasSubstr(concat("process ", child)));
  write(entry_with("process_start", "1").dump());  // the number was given again
  EXPECT_THAT(taken_over(), HasSubstr(concat("process ", ::getpid(), " on host ")));
  write(entry_with("process_space", "an-earlier-boot pid:[1]").dump());
  EXPECT_THAT(taken_over(), HasSubstr(concat("process ", ::getpid(), " on host ")));
}

TEST_F(Lock, AnOwnerElsewhereIsGoneWhenItCountsNoMore) {
  ConfigTree const other = entry_with("host", "elsewhere");
  write(other.dump());
  auto const begin = std::chrono::steady_clock::now();
  EXPECT_THAT(taken_over(), HasSubstr("on host elsewhere"));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, quick.patience);

  write(other.dump());
  Heartbeat const heartbeat(file(), other);
  EXPECT_THAT(refusal(milliseconds(20000)), HasSubstr(" on host elsewhere"));
}

TEST_F(Lock, TimeStampsAndClocksDecideNothing) {
  auto const now = fs::file_time_type::clock::now();
  for (auto const shift : {std::chrono::hours(-100000), std::chrono::hours(100000)}) {
    RunLock const first(directory, {milliseconds(10'000), milliseconds(35'000)});
    fs::last_write_time(file(), now + shift);
    EXPECT_THAT(refusal(), HasSubstr("in use"));
  }
  for (char const* started : {"1970-01-01T00:00:00Z", "2999-01-01T00:00:00Z"}) {
    write(entry_with("started", started).dump());
    EXPECT_THAT(refusal(), HasSubstr(started));
    fs::remove(file());
  }
}

TEST_F(Lock, ATornEntryIsNobodys) {
  for (char const* torn : {"", "{\"host\": \"a"}) {
    write(torn);
    EXPECT_THAT(taken_over(), HasSubstr("has not written its entry"));
  }
}

TEST_F(Lock, AJobThatWasPutBackIntoTheQueueTakesOverAtOnce) {
  setenv("SLURM_JOB_ID", "4711", 1);
  setenv("SLURM_RESTART_COUNT", "1", 1);
  ConfigTree former = entry_with("host", "elsewhere");
  write(former.set("restart", 0).dump());
  auto const begin = std::chrono::steady_clock::now();
  EXPECT_THAT(taken_over(), HasSubstr("job 4711"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, quick.patience);
  unsetenv("SLURM_JOB_ID");
  unsetenv("SLURM_RESTART_COUNT");
}

TEST_F(Lock, TheReplacedOneLearnsIt) {
  RunLock const first(directory, quick);
  write(ConfigTree::parse(text(), "lock").set("id", "another").dump());
  EXPECT_TRUE(becomes_true([&] { return !first.held(); }));
}

TEST_F(Lock, AFileRemovedByHandIsWrittenAgain) {
  RunLock const first(directory, quick);
  fs::remove(file());
  EXPECT_TRUE(becomes_true([&] { return fs::exists(file()); }));
  EXPECT_THAT(refusal(), HasSubstr("in use"));
  EXPECT_TRUE(first.held());
}

TEST_F(Lock, OneOfManyTakesOver) {
  for (int round = 0; round < 20; ++round) {
    write(entry_with("process_start", "1").dump());
    std::atomic<int> owners{0}, refused{0};
    std::vector<std::optional<RunLock>> locks(8);
    std::vector<std::thread> threads;
    for (auto& slot : locks)
      threads.emplace_back([&] {
        try {
          slot.emplace(directory, quick);
          ++owners;
        } catch (DirectoryInUse const&) {
          ++refused;
        }
      });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(owners, 1);
    EXPECT_EQ(refused, 7);
    for (auto const& lock : locks) EXPECT_TRUE(!lock || lock->held());
  }
}

}  // namespace
