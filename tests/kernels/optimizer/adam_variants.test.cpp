/// Its values are compared with stored ones in tests/optim.
#include "tessera/kernels/optimizer/elementwise_update.hpp"

#include "update_case.hpp"

namespace tessera::kernels::test {
namespace {

TEST(AdamVariants, BothTraversalsGiveTheSameBits) {
  AdamaxStep adamax_step;
  adamax_step.beta2 = 0.5;
  expect_update_on_both_sides(adamax, adamax_step, 2);
  for (auto const decay : {Decay::l2, Decay::decoupled}) {
    AdamVariantStep step;
    step.decay = decay;
    step.gradient_share = 0.25;
    expect_update_on_both_sides(adam_variant, step, 2);
  }
}

TEST(AdamVariants, RefuseStepZero) {
  AdamaxStep step;
  step.bias_correction1 = 0.0;
  EXPECT_THROW(adamax(*memory::make_inline_queue("compute"), step), InternalError);
}

}  // namespace
}  // namespace tessera::kernels::test
