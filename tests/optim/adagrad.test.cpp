#include "optimizers/table.hpp"

#include <gtest/gtest.h>

#include "trajectory.hpp"

namespace tessera::optim::test {
namespace {

TEST(Adagrad, EqualsTorch) { expect_trajectories("Adagrad"); }

}  // namespace
}  // namespace tessera::optim::test
