#include "optimizers/table.hpp"

#include <gtest/gtest.h>

#include "trajectory.hpp"
#include "update_by.hpp"

namespace tessera::optim::test {
namespace {

TEST(RmsProp, EqualsTorch) { expect_trajectories("RMSprop"); }

TEST(RmsProp, KeepsTheStatesThatItNeeds) {
  auto const names = [](std::vector<Hyperparameter> const& values) {
    return make_spec("RMSprop", values).state_names();
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names({}), (Names{"fp32", "square_avg"}));
  EXPECT_EQ(names({{"momentum", 0.9}}), (Names{"fp32", "square_avg", "momentum_buffer"}));
  EXPECT_EQ(names({{"centered", 1.0}}), (Names{"fp32", "square_avg", "grad_avg"}));
  EXPECT_EQ(names({{"centered", 1.0}, {"momentum", 0.9}}),
            (Names{"fp32", "square_avg", "momentum_buffer", "grad_avg"}));
}

TEST(RmsProp, BothTraversalsGiveTheSameBits) {
  for (double const momentum : {0.0, 0.9})
    for (double const centered : {0.0, 1.0}) {
      auto const spec =
          make_spec("RMSprop", {{"momentum", momentum}, {"centered", centered}, {"alpha", 0.5}});
      EXPECT_EQ(spec.states.size(), 1u + (momentum != 0.0 ? 1u : 0u) + (centered != 0.0 ? 1u : 0u));
      expect_optimizer_on_both_sides(spec);
    }
}

}  // namespace
}  // namespace tessera::optim::test
