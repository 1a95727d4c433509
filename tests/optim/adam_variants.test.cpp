#include "optimizers/table.hpp"

#include <gtest/gtest.h>

#include "trajectory.hpp"

namespace tessera::optim::test {
namespace {

TEST(AdamVariants, EqualTorch) {
  for (char const* algorithm : {"Adamax", "NAdam", "RAdam"}) expect_trajectories(algorithm);
}

}  // namespace
}  // namespace tessera::optim::test
