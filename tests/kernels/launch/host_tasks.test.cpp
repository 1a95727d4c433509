#include "launch/host_tasks.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <vector>

namespace tessera::kernels::detail {
namespace {

class HostTasks : public ::testing::TestWithParam<memory::QueueKind> {
 protected:
  std::unique_ptr<memory::Queue> queue = GetParam() == memory::QueueKind::worker
                                             ? memory::make_worker_queue("worker")
                                             : memory::make_inline_queue("compute");
};
INSTANTIATE_TEST_SUITE_P(Queues, HostTasks,
                         ::testing::Values(memory::QueueKind::inline_host,
                                           memory::QueueKind::worker));

TEST_P(HostTasks, RunEachIndexOnce) {
  for (std::int64_t n : {0, 1, 2, 37, 1000}) {
    std::vector<int> runs(static_cast<std::size_t>(n));
    launch_tasks(*queue, "tessera::kernels::test", n,
                 [&runs](std::int64_t i) { ++runs[static_cast<std::size_t>(i)]; });
    queue->record().wait("tasks", std::chrono::seconds(60));
    EXPECT_EQ(runs, std::vector<int>(static_cast<std::size_t>(n), 1));
  }
}

TEST_P(HostTasks, KeepTheirFunctionUntilTheyHaveRun) {
  std::vector<std::int64_t> out(100);
  {
    std::vector<std::int64_t> values(100);
    std::iota(values.begin(), values.end(), 5);
    launch_tasks(*queue, "tessera::kernels::test", 100, [values, &out](std::int64_t i) {
      out[static_cast<std::size_t>(i)] = values[static_cast<std::size_t>(i)];
    });
  }
  queue->record().wait("tasks", std::chrono::seconds(60));
  EXPECT_EQ(out.front(), 5);
  EXPECT_EQ(out.back(), 104);
}

}  // namespace
}  // namespace tessera::kernels::detail
