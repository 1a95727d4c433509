#include "optimizers/table.hpp"

#include <gtest/gtest.h>

#include "tessera/core/error.hpp"
#include "tessera/optim/compression.hpp"

namespace tessera::optim::test {
namespace {

TEST(OneBitLamb, CompressesAfterTheFreezeWithAScalePerUnit) {
  auto const optimizer = make_optimizer(make_spec("OneBitLamb", {{"freeze_step", 4}}));
  auto const* const compression = compression_of(*optimizer);
  ASSERT_TRUE(compression);
  EXPECT_TRUE(compression->communication(4).reduces_gradients);
  EXPECT_FALSE(compression->communication(5).reduces_gradients);
  EXPECT_EQ(compression->scales(), Compression::Scales::per_unit);
}

TEST(OneBitLamb, RefusesFactorsInTheWrongOrder) {
  EXPECT_THROW((void)make_spec("OneBitLamb", {{"factor_min", 2.0}, {"factor_max", 1.0}}),
               ConfigError);
}

}  // namespace
}  // namespace tessera::optim::test
