#include "recovery/memory_directory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "scratch_files.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/process.hpp"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

/// The id of a process that has ended.
pid_t ended_process() {
  pid_t const child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

TEST(MemoryDirectory, IsRemovedAtTheEnd) {
  ScratchFiles files;
  fs::path path;
  {
    MemoryDirectory const memory(files.path());
    path = memory.path();
    fs::create_directories(path / "node0/step_00000001");
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(MemoryDirectory, RemovesOnlyThoseOfProcessesThatHaveEnded) {
  ScratchFiles files;
  auto const directory_of = [&](std::string const& host, pid_t pid) {
    auto path = files.path() / concat("tessera-run-", host, "-", pid);
    fs::create_directories(path);
    return path;
  };
  pid_t const gone = ended_process();
  auto const left = directory_of(host_name(), gone), of_other_host = directory_of("other", gone),
             of_parent = directory_of(host_name(), ::getppid());
  fs::create_directories(files.path() / "tessera-run-x");
  MemoryDirectory const memory(files.path());
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(of_other_host));
  EXPECT_TRUE(fs::exists(of_parent)) << "its owner lives";
  EXPECT_TRUE(fs::exists(files.path() / "tessera-run-x"));
}

TEST(MemoryDirectory, IsRemovedByTheLauncherOnEveryNode) {
  ScratchFiles files;
  auto const launcher = files.path() / "mpirun";
  std::ofstream(launcher) << "#!/bin/sh\necho \"$@\" >" << (files.path() / "words").string()
                          << "\n";
  fs::permissions(launcher, fs::perms::owner_all);
  MemoryDirectory const memory(files.path());
  LaunchRequest launch;
  launch.mpirun = launcher.string();
  launch.hosts = {{"a", {0, 1}}, {"b", {0, 1}}};
  EXPECT_EQ(memory.remove_on(launch), "");
  std::string words;
  std::ifstream in(files.path() / "words");
  std::getline(in, words);
  EXPECT_THAT(words, testing::HasSubstr("a:1,b:1"));
  EXPECT_THAT(words, testing::EndsWith("rm -rf " + memory.path().string()));
  launch.mpirun = "/none/mpirun";
  EXPECT_THAT(memory.remove_on(launch), testing::HasSubstr("remove it there by hand"));
}

}  // namespace
}  // namespace tessera::cli
