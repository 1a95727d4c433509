/// Run twice, without and with OMP_PROC_BIND=true. Oracle: the mask of the parent process, from
/// which this one has its own.
#include "tessera/core/process.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <thread>

namespace tessera {
namespace {

std::vector<int> cores_of(pid_t process) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  EXPECT_EQ(sched_getaffinity(process, sizeof mask, &mask), 0);
  std::vector<int> cores;
  for (int c = 0; c < CPU_SETSIZE; ++c)
    if (CPU_ISSET(c, &mask)) cores.push_back(c);
  return cores;
}

TEST(AllowedCores, AreThoseThatTheProcessWasStartedWith) {
  EXPECT_EQ(allowed_cores(), cores_of(getppid()));
}

TEST(AllowedCores, CanBeUsedByAThreadOfABoundOne) {
  std::vector<int> cores;
  std::thread([&] {
    use_allowed_cores();
    cores = cores_of(0);
  }).join();
  EXPECT_EQ(cores, cores_of(getppid()));
}

}  // namespace
}  // namespace tessera
