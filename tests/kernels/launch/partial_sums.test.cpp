#include "launch/partial_sums.hpp"

#include <gtest/gtest.h>

#include "fake_device.hpp"

namespace tessera::kernels::detail {
namespace {

struct Count {
  double* out;
  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t row) const {
    if (team.rank() == 0) out[row] = static_cast<double>(row);
  }
};

/// Every queue gets room of its own kind that later, longer requests replace.
TEST(PartialSums, AreWrittenOnEveryQueue) {
  tessera::test::FakeDevice device;
  std::unique_ptr<Queue> const queues[] = {memory::make_inline_queue("compute"),
                                           memory::make_worker_queue("worker"),
                                           memory::make_stream_queue("compute")};
  for (auto const& q : queues)
    for (std::int64_t const numel : {3, 1000, 10}) {
      double* room = nullptr;
      with_partial_sums(*q, "count", numel, [&room, numel](double* partial, auto const& launch) {
        launch(Count{partial}, numel);
        room = partial;
      });
      q->record().wait("the sums", std::chrono::seconds(60));
      ASSERT_NE(room, nullptr);
      EXPECT_EQ(room[numel - 1], static_cast<double>(numel - 1));
    }
}

}  // namespace
}  // namespace tessera::kernels::detail
