#include "optimizers/table.hpp"

#include <gtest/gtest.h>

#include "trajectory.hpp"

namespace tessera::optim::test {
namespace {

TEST(Lion, EqualsThePublishedProgram) { expect_trajectories("Lion"); }

}  // namespace
}  // namespace tessera::optim::test
