#include "attention/attention_amx.hpp"

#include "bf16_attention_case.hpp"
#include "tessera/kernels/launch/used_routes.hpp"

namespace tessera::kernels::test {
namespace {

/// PyTorch rounds the same numbers; in thousands of elements the sums of their errors differ by
/// less than 1 %.
TEST(AttentionByAmx, IsAsAccurateAsPyTorch) {
  if (!detail::has_amx_bf16()) GTEST_SKIP() << "this machine or build has no AMX";
  auto const queue = memory::make_inline_queue("compute");
  for (auto& c : Bf16AttentionCase::all()) {
    reset_used_routes();
    c.forward(*queue);
    EXPECT_EQ(used_routes_text(), "attention tiles on the host, bf16 by AMX");
    EXPECT_LE(c.error(c.out(), c.reference().out), 1.01 * c.error_of_torch("out")) << c.name();
  }
}

/// The form for other processors does not round P, so it must be nearer than both.
TEST(AttentionByAmx, IsNotTakenWhereItIsForbidden) {
  auto const queue = memory::make_inline_queue("compute");
  detail::WithoutAmx const everywhere;
  for (auto& c : Bf16AttentionCase::all()) {
    reset_used_routes();
    c.forward(*queue);
    EXPECT_EQ(used_routes_text(), "attention tiles on the host");
    EXPECT_LE(c.error(c.out(), c.reference().out), 0.98 * c.error_of_torch("out")) << c.name();
  }
}

}  // namespace
}  // namespace tessera::kernels::test
