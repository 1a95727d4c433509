#include "attention/attention_amx.hpp"

#include "bf16_attention_case.hpp"
#include "tessera/kernels/launch/used_routes.hpp"

namespace tessera::kernels::test {
namespace {

constexpr char const* names[] = {"dquery", "dkey", "dvalue"};

TEST(AttentionBackwardByAmx, IsAtLeastAsAccurateAsPyTorch) {
  if (!detail::has_amx_bf16()) GTEST_SKIP() << "this machine or build has no AMX";
  auto const queue = memory::make_inline_queue("compute");
  for (auto& c : Bf16AttentionCase::all()) {
    c.forward(*queue);
    reset_used_routes();
    c.backward(*queue);
    EXPECT_EQ(used_routes_text(), "attention backward tiles on the host, bf16 by AMX");
    auto const want = c.reference();
    for (int i = 0; i < 3; ++i)
      EXPECT_LE(c.error(c.gradient(i), want.gradient[static_cast<std::size_t>(i)]),
                c.error_of_torch(names[i]))
          << names[i] << " of " << c.name();
  }
}

TEST(AttentionBackwardByAmx, IsNotTakenWhereItIsForbidden) {
  auto const queue = memory::make_inline_queue("compute");
  detail::WithoutAmx const everywhere;
  auto c = Bf16AttentionCase::all().front();
  c.forward(*queue);
  reset_used_routes();
  c.backward(*queue);
  EXPECT_EQ(used_routes_text(), "attention backward tiles on the host");
}

}  // namespace
}  // namespace tessera::kernels::test
