#include "tessera/comm/base/collectives.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace tessera::comm {
namespace {

TEST(SynchronousCalls, AreOfTheirThreadAndNest) {
  EXPECT_FALSE(SynchronousCalls::active());
  {
    SynchronousCalls const outer;
    { SynchronousCalls const inner; }
    EXPECT_TRUE(SynchronousCalls::active());
    std::thread([] { EXPECT_FALSE(SynchronousCalls::active()); }).join();
  }
  EXPECT_FALSE(SynchronousCalls::active());
}

}  // namespace
}  // namespace tessera::comm
