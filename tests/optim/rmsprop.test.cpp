#include "optimizers/table.hpp"

#include <gtest/gtest.h>

#include "trajectory.hpp"

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

}  // namespace
}  // namespace tessera::optim::test
