#include "tessera/kernels/launch/kernel_times.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "launch/timed.hpp"
#include "tessera/core/error.hpp"

namespace tessera::kernels {
namespace {

/// The measured times are of the clock, so time has to pass.
void pass_time() { std::this_thread::sleep_for(std::chrono::milliseconds(3)); }

TEST(KernelTimes, OutermostKernelsCountWhereTheyBelong) {
  auto const queue = memory::make_inline_queue("compute"),
             worker = memory::make_worker_queue("worker");
  { detail::Timed const before(*queue, "tessera::kernels::fill"); }
  KernelTimes times;
  EXPECT_THROW(KernelTimes(), InternalError) << "one at a time";
  {
    detail::Timed const outer(*queue, "tessera::kernels::gemm");
    detail::Timed const inner(*queue, "tessera::kernels::fill");
    pass_time();
  }
  for (int i = 0; i < 2; ++i) {
    HeadScope const head;
    detail::Timed const product(*queue, "tessera::kernels::gemm");
    pass_time();
    pass_time();
  }
  { detail::Timed const elsewhere(*worker, "tessera::kernels::adamw"); }
  auto const entries = times.take();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_GE(entries[0].seconds, entries[1].seconds) << "the longest first";
  // on a busy machine one sleep may take longer than four
  auto const& head = entries[entries[0].work == Work::head ? 0 : 1];
  auto const& product = entries[entries[0].work == Work::head ? 1 : 0];
  EXPECT_EQ(head.work, Work::head);
  EXPECT_EQ(head.calls, 2);
  EXPECT_GE(head.seconds, 8e-3);
  EXPECT_EQ(product.work, Work::products);
  EXPECT_EQ(product.calls, 1);
  EXPECT_GE(product.seconds, 2e-3);
  EXPECT_TRUE(times.take().empty());
}

TEST(KernelTimes, KindsFollowTheNames) {
  auto const queue = memory::make_inline_queue("compute");
  KernelTimes times;
  for (auto const& [name, work] : {std::pair{"tessera::kernels::gemm_bias", Work::products},
                                   {"tessera::kernels::attention_backward_delta", Work::attention},
                                   {"tessera::kernels::cross_entropy", Work::head},
                                   {"tessera::kernels::layer_norm", Work::elementwise},
                                   {"tessera::kernels::adamw_8bit", Work::optimizer},
                                   {"tessera::kernels::gradient_statistics", Work::optimizer}}) {
    { detail::Timed const timed(*queue, name); }
    auto const entries = times.take();
    ASSERT_EQ(entries.size(), 1u);
    EXPECT_EQ(entries[0].work, work) << name;
  }
}

}  // namespace
}  // namespace tessera::kernels
