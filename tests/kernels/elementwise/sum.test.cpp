#include "tessera/kernels/elementwise/elementwise.hpp"

#include "fake_device.hpp"
#include "reference.hpp"

namespace tessera::kernels::test {
namespace {

void check(Queue& q) {
  for (std::int64_t n : {0, 1, 127, 128, 129, 5000}) {
    Array in(Dtype::fp32, {n});
    in.randomize(1, 100.0, 3.0);
    double want = 0.0, got = -1.0;
    for (double const x : in.values()) want += x;
    sum(q, &got, in.view());
    q.record().wait("sum", std::chrono::seconds(60));
    EXPECT_EQ(got, want) << "the elements are added in order, in double: " << n;
  }
}

void check_addends(Queue& q) {
  for (std::size_t n : {0u, 1u, 16u, 17u, 40u}) {
    std::vector<double> values(n);
    std::vector<double const*> addends;
    double want = 0.25, got = want;
    for (std::size_t i = 0; i < n; ++i) {
      values[i] = i % 2 ? -1e16 : 1e16 + static_cast<double>(7 * i);
      addends.push_back(&values[i]);
      want += values[i];
    }
    add_in_order(q, &got, addends);
    q.record().wait("the sum", std::chrono::seconds(60));
    EXPECT_EQ(got, want) << n << " addends";
  }
}

TEST(AddInOrder, IsTheSumOfALoop) { check_addends(*memory::make_inline_queue("compute")); }
TEST(AddInOrder, IsTheSumOfALoopOnAStream) {
  tessera::test::FakeDevice device;
  check_addends(*memory::make_stream_queue("compute"));
}

TEST(Sum, AddsInOrderOnTheHost) { check(*memory::make_inline_queue("compute")); }
TEST(Sum, AddsInOrderOnAWorkerQueue) { check(*memory::make_worker_queue("worker")); }
TEST(Sum, AddsOnAStream) {
  tessera::test::FakeDevice device;
  check(*memory::make_stream_queue("compute"));
}

}  // namespace
}  // namespace tessera::kernels::test
