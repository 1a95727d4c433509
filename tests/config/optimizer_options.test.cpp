#include "detail/option_rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "tessera/optim/optimizer.hpp"

namespace tessera::config::detail {
namespace {

OptionTable optimizer_options() {
  ArgumentRows table;
  add_optimizer_options(table);
  return table;
}

TEST(OptimizerOptions, DefaultsAreThoseOfTheTrainer) {
  auto const table = optimizer_options();
  auto const default_of = [&](std::string const& name) {
    auto const* option = table.find(name);
    return option ? option->default_value : ConfigTree("missing");
  };
  EXPECT_EQ(default_of("learning_rate").as_double(), 5e-5);
  EXPECT_EQ(default_of("weight_decay").as_double(), 0.0);
  EXPECT_EQ(default_of("adam_beta1").as_double(), 0.9);
  EXPECT_EQ(default_of("adam_beta2").as_double(), 0.999);
  EXPECT_EQ(default_of("adam_epsilon").as_double(), 1e-8);
  EXPECT_EQ(default_of("max_grad_norm").as_double(), 1.0);
  EXPECT_EQ(default_of("lr_scheduler_type").dump(), "\"linear\"");
  EXPECT_EQ(default_of("optim").dump(), "\"adamw_torch_fused\"");
}

TEST(OptimizerOptions, EveryNameOfAnOptimizerIsEitherAChoiceOrRefused) {
  auto const table = optimizer_options();
  auto const& optim = *table.find("optim");
  for (auto const& info : optim::optimizers())
    for (std::string_view const name : info.hugging_face_names) {
      EXPECT_EQ(std::ranges::count(optim.choices, name), 1) << name;
      EXPECT_FALSE(std::ranges::any_of(optim.exceptions, [&](auto const& refused) {
        return refused.first == name;
      })) << name;
    }
  for (auto const& [name, reason] : optim.exceptions) EXPECT_FALSE(reason.empty()) << name;
  EXPECT_FALSE(optim.exceptions.empty());
}

TEST(OptimizerOptions, AreOneGroup) {
  auto const table = optimizer_options();
  for (auto const& option : table.options())
    EXPECT_EQ(option.group, "Optimizer and schedule") << option.name;
}

}  // namespace
}  // namespace tessera::config::detail
