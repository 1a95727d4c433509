/// Main of suites that run in one process: no test found is a failure.
#include <gtest/gtest.h>

#include <cstdio>

#include "tessera/memory/runtime.hpp"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  tessera::memory::Runtime const runtime{{}};
  int const failed = RUN_ALL_TESTS();
  if (::testing::UnitTest::GetInstance()->test_to_run_count() == 0) {
    std::fputs("no test was run\n", stderr);
    return 1;
  }
  return failed;
}
