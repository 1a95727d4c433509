#include "detail/resolvers.hpp"

#include <gtest/gtest.h>

namespace tessera::config::detail {
namespace {

/// The hyperparameters are those of the optimizer, under the names that manifests have.
TEST(ConfigFields, FollowTheOptimizer) {
  ResolvedConfig config;
  config.optimizer = optim::make_spec("RMSprop", {{"centered", 1.0}, {"eps", 0.5}});
  config.origins["epsilon"] = Origin::flag;
  auto const fields = describe_fields(config);
  EXPECT_EQ(fields.at("optimizer").at("value").as_string(), "RMSprop");
  EXPECT_TRUE(fields.at("centered").at("value").as_bool());
  EXPECT_EQ(fields.at("epsilon").at("value").as_double(), 0.5);
  EXPECT_EQ(fields.at("epsilon").at("origin").as_string(), "flag");
  EXPECT_EQ(fields.at("alpha").at("origin").as_string(), "default");
  EXPECT_FALSE(fields.contains("beta1") || fields.contains("adam_l2"));
  EXPECT_TRUE(describe_fields({}).contains("beta1"));
}

}  // namespace
}  // namespace tessera::config::detail
