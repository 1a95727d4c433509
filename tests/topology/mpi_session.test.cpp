#include "tessera/topology/mpi_session.hpp"

#include <gtest/gtest.h>
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "mpi_test.hpp"

namespace tessera::topology {
namespace {

/// Sets or removes an environment variable for a scope.
class Environment {
 public:
  Environment(char const* name, char const* value) : name_(name) {
    if (char const* old = std::getenv(name)) old_ = old, had_ = true;
    if (value)
      setenv(name, value, 1);
    else
      unsetenv(name);
  }
  ~Environment() {
    if (had_)
      setenv(name_, old_.c_str(), 1);
    else
      unsetenv(name_);
  }

 private:
  char const* name_;
  std::string old_;
  bool had_ = false;
};

int cores_in_own_mask() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  EXPECT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  return CPU_COUNT(&mask);
}

TEST(MpiSession, SaysWhatMpiSays) {
  auto const& info = test::session().info();
  int rank = -1, size = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  EXPECT_EQ(info.rank, rank);
  EXPECT_EQ(info.world_size, size);
  ASSERT_EQ(test::session().hosts().size(), static_cast<std::size_t>(size));
  EXPECT_EQ(test::session().hosts()[static_cast<std::size_t>(rank)], info.host);
  EXPECT_FALSE(MpiSession::library_version().empty());
}

TEST(MpiSession, RanksOfOneMachineAreOneNode) {
  auto const& info = test::session().info();
  EXPECT_EQ(info.node, first_node);
  EXPECT_EQ(info.node_count, 1);
  EXPECT_EQ(info.local_rank, info.rank);
  EXPECT_EQ(info.local_size, info.world_size);
}

TEST(CoresOfRank, EnvironmentWins) {
  Environment const threads("OMP_NUM_THREADS", "3,2");
  EXPECT_EQ(cores_of_rank(test::session()), 3);
}

TEST(CoresOfRank, EqualMasksAreSharedEqually) {
  Environment const threads("OMP_NUM_THREADS", nullptr);
  EXPECT_EQ(cores_of_rank(test::session()),
            std::max(1, cores_in_own_mask() / test::session().info().local_size));
}

TEST(CoresOfRank, AMaskOfItsOwnIsNotShared) {
  int const cores = cores_in_own_mask();
  if (cores < test::session().info().local_size || test::session().info().local_size < 2)
    GTEST_SKIP() << "needs a core for each of at least two ranks";
  Environment const threads("OMP_NUM_THREADS", nullptr);
  cpu_set_t before, one;
  sched_getaffinity(0, sizeof before, &before);
  CPU_ZERO(&one);
  for (int c = 0, seen = 0; c < CPU_SETSIZE; ++c)
    if (CPU_ISSET(c, &before) && seen++ == test::session().info().local_rank) CPU_SET(c, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(cores_of_rank(test::session()), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

}  // namespace
}  // namespace tessera::topology
