#include "tessera/zero/layout/parameter_subset.hpp"

#include "quadratic_model.hpp"

#include <gtest/gtest.h>

namespace tessera::zero {
namespace {

TEST(ParameterSubset, UnitsKeepTheirIndexAndParametersTheirOrder) {
  auto const units = test::QuadraticModel(1).train_only({"wpe", "b", "k"}).units();
  auto const trained = trained_parameters(units), frozen = frozen_parameters(units);
  using Indices = std::vector<std::vector<std::size_t>>;
  EXPECT_EQ(trained.in_model, (Indices{{1}, {1, 3}, {}}));
  EXPECT_EQ(frozen.in_model, (Indices{{0}, {0, 2}, {0}}));
  EXPECT_EQ(trained.units[1].name, "block.0");
  EXPECT_EQ(trained.units[1].parameters[1].name, "k");
  EXPECT_EQ(frozen.units[0].parameters[0].aliases, std::vector<std::string>{"head.weight"});
  EXPECT_FALSE(trained.empty());
  EXPECT_TRUE(trained_parameters(test::QuadraticModel(1).train_only({}).units()).empty());
}

}  // namespace
}  // namespace tessera::zero
