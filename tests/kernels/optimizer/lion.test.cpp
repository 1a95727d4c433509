/// Its values are compared with stored ones in tests/optim.
#include "tessera/kernels/optimizer/elementwise_update.hpp"

#include "update_case.hpp"

namespace tessera::kernels::test {
namespace {

TEST(Lion, BothTraversalsGiveTheSameBits) { expect_update_on_both_sides(lion, LionStep(), 1); }

TEST(Lion, AZeroSumOnlyDecays) {
  auto const q = memory::make_inline_queue("compute");
  float p[] = {2.0f, 2.0f}, m[] = {0.0f, 0.0f}, g[] = {0.0f, -1e-30f};
  LionStep step;
  step.segments = {{p, {m}, g, nullptr, 2, 0.5, 0.5}};
  lion(*q, step);
  EXPECT_EQ(p[0], 1.5f);
  EXPECT_EQ(p[1], 2.0f);
}

}  // namespace
}  // namespace tessera::kernels::test
