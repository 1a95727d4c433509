/// Its values are compared with stored ones in tests/optim.
#include "tessera/kernels/optimizer/elementwise_update.hpp"

#include "update_case.hpp"

namespace tessera::kernels::test {
namespace {

TEST(RmsProp, BothTraversalsGiveTheSameBits) {
  for (double const momentum : {0.0, 0.9})
    for (bool const centered : {false, true}) {
      RmsPropStep step;
      step.momentum = momentum;
      step.centered = centered;
      step.alpha = 0.5;
      std::size_t const states = 1u + (momentum != 0.0 ? 1u : 0u) + (centered ? 1u : 0u);
      expect_update_on_both_sides(rmsprop, step, states);
    }
}

}  // namespace
}  // namespace tessera::kernels::test
