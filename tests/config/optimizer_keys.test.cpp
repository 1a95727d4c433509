#include "detail/optimizer_keys.hpp"

#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::config::detail {
namespace {

DeepSpeedConfig keys_of(ConfigTree const& params) {
  DeepSpeedConfig json;
  json.source = "ds.json";
  for (auto const& [name, value] : params.as_object())
    json.keys.entries["optimizer.params." + name] = {value, Origin::deepspeed};
  return json;
}

TEST(OptimizerKeys, ThoseOfAnotherOptimizerAreRefused) {
  auto const params = ConfigTree::parse(R"({"betas": [0.9, 0.95], "muon_lr": 0.02})", "test");
  EXPECT_NO_THROW(check_hyperparameters(keys_of(params), "Muon"));
  EXPECT_THROW(check_hyperparameters(keys_of(params), "AdamW"), ConfigError);
  try {
    check_hyperparameters(keys_of(params), "SGD");
    ADD_FAILURE() << "nothing was thrown";
  } catch (ConfigError const& e) {
    for (char const* part : {"optimizer.params.muon_lr is 0.02", "optimizer.params.betas is [0.9",
                             "SGD has no such hyperparameters; remove the keys"})
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(OptimizerKeys, RatesAreMultiplesOfThePeak) {
  auto const none = ConfigTree::object();
  EXPECT_EQ(rate_multiple(keys_of(none), "adam_rate", {0.02, true}), 1.0);
  EXPECT_DOUBLE_EQ(rate_multiple(keys_of(none), "adam_rate", {0.02, false}), 3e-4 / 0.02);
  EXPECT_EQ(rate_multiple(keys_of(none), "muon_rate", {0.02, false}), 1.0);
  auto const both = ConfigTree::parse(R"({"muon_lr": 0.02, "adam_lr": 0.001})", "test");
  EXPECT_DOUBLE_EQ(rate_multiple(keys_of(both), "muon_rate", {0.01, true}), 2.0);
  EXPECT_THROW((void)rate_multiple(keys_of(both), "adam_rate", {0.0, true}), ConfigError);
}

TEST(OptimizerKeys, RelativeStepsExcludeARate) {
  EXPECT_FALSE(sets_own_rate(optim::make_spec("Adafactor"), true));
  auto const relative = optim::make_spec("Adafactor", {{"relative_step", 1.0}});
  EXPECT_TRUE(sets_own_rate(relative, false));
  EXPECT_THROW((void)sets_own_rate(relative, true), UsageError);
}

}  // namespace
}  // namespace tessera::config::detail
