#include "tessera/topology/processors.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

namespace tessera::topology {
namespace {

TEST(Processors, CountsFitTogether) {
  auto const counts = count_processors();
  ASSERT_TRUE(counts);
  EXPECT_GE(counts->sockets, 1);
  EXPECT_GE(counts->numa_domains, 1);
  EXPECT_GE(counts->cores, counts->sockets);
  EXPECT_GE(counts->hardware_threads, counts->cores);
  EXPECT_GE(counts->hardware_threads, ::sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace
}  // namespace tessera::topology
