/// Runs the launches of a suite in blocks of fibers, those on the host's queues too:
/// TESSERA_TEST_FIBERS is "ORDER,WARP,THREADS", the order of the threads (ascending or descending),
/// the lanes of a warp and the threads that share a row.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>

#include "fiber_thread_block.hpp"

namespace tessera::kernels::test {
namespace {

class OnFibers : public ::testing::Environment {
 public:
  explicit OnFibers(std::string const& text) {
    std::istringstream in(text);
    std::string order;
    int warp = 0, threads = 0;
    char comma = 0;
    std::getline(in, order, ',');
    in >> warp >> comma >> threads;
    device_.emplace(order == "descending" ? FiberOrder::descending : FiberOrder::ascending, warp,
                    threads, true);
  }
  void TearDown() override {
    std::printf("%ld blocks of fibers\n", static_cast<long>(device_->blocks()));
    EXPECT_GT(device_->blocks(), 0) << "no launch of this suite ran in a block";
  }

 private:
  std::optional<FiberDevice> device_;
};

::testing::Environment* const added = [] {
  char const* const text = std::getenv("TESSERA_TEST_FIBERS");
  return text ? ::testing::AddGlobalTestEnvironment(new OnFibers(text)) : nullptr;
}();

}  // namespace
}  // namespace tessera::kernels::test
