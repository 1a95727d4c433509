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

TEST(Sum, AddsInOrderOnTheHost) { check(*memory::make_inline_queue("compute")); }
TEST(Sum, AddsInOrderOnAWorkerQueue) { check(*memory::make_worker_queue("worker")); }
TEST(Sum, AddsOnAStream) {
  tessera::test::FakeDevice device;
  check(*memory::make_stream_queue("compute"));
}

}  // namespace
}  // namespace tessera::kernels::test
