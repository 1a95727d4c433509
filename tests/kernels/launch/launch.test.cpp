#include "launch/launch.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace tessera::kernels::detail {
namespace {

struct Count {
  int* visits;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const { ++visits[i]; }
};
struct SumRow {
  float const* in;
  float* sums;
  std::int64_t columns;
  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t row) const {
    float sum = 0;
    for_chunks(team, columns, [&](std::int64_t first, int count) {
      for (int i = 0; i < count; ++i) sum += in[row * columns + first + i];
    });
    sums[row] = team.sum(sum);
  }
};

class Launch : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Queue> queue =
      GetParam() ? memory::make_worker_queue("worker") : memory::make_inline_queue("compute");
  void finish() { queue->record().wait("kernels", std::chrono::seconds(60)); }
};

TEST_P(Launch, VisitsEveryElementOnce) {
  for (std::int64_t n : {0, 1, 7, 4095, 4096, 4097, 100001}) {
    std::vector<int> one(static_cast<std::size_t>(n));
    parallel_for(*queue, "tessera::kernels::test", n, Count{one.data()});
    finish();
    EXPECT_EQ(one, std::vector<int>(static_cast<std::size_t>(n), 1));
  }
}

TEST_P(Launch, RowsAreSummedByTheirTeams) {
  std::vector<float> const in{1, 2, 3, 4, 5, 6};
  std::vector<float> rows(2);
  parallel_rows(*queue, "tessera::kernels::test", 2, SumRow{in.data(), rows.data(), 3});
  finish();
  EXPECT_EQ(rows, (std::vector<float>{6, 15}));
}

INSTANTIATE_TEST_SUITE_P(Queues, Launch, ::testing::Bool());

TEST(WithType, CallsTheRightType) {
  std::size_t bytes = 0;
  auto const take = [&](auto tag) { bytes = sizeof(typename decltype(tag)::type); };
  with_type(Dtype::fp32, "test", take);
  EXPECT_EQ(bytes, 4u);
  with_type(Dtype::bf16, "test", take);
  EXPECT_EQ(bytes, 2u);
  EXPECT_THROW(with_type(Dtype::int32, "test", take), InternalError);
}

}  // namespace
}  // namespace tessera::kernels::detail
