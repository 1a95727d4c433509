#include "commands.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "command_output.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string estimate(std::vector<std::string> words) {
  words.insert(words.begin(), "estimate");
  return test::output_of(add_estimate, std::move(words));
}

std::vector<std::string> with_gpt2(std::vector<std::string> words,
                                   std::vector<std::string> const& more = {}) {
  for (auto const* word : {"--", "--model_type", "gpt2", "--bf16"}) words.emplace_back(word);
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// gpt2 has 124,439,808 parameters, 50257 * 768 of them in wte.
TEST(Estimate, CountsParametersAndStates) {
  auto const out = ConfigTree::parse(
      estimate(with_gpt2({"--json", "--num_nodes", "2", "--num_gpus_per_node", "4"})), "stdout");
  EXPECT_EQ(out.at("parameters").as_int(), 124'439'808);
  EXPECT_EQ(out.at("largest_layer").as_int(), 50257 * 768);
  EXPECT_EQ(out.at("sequence").as_int(), 1024);
  auto const& plans = out.at("plans").as_array();
  ASSERT_EQ(plans.size(), 12u) << "stages by recomputation";
  for (auto const& plan : plans) {
    auto const stage = plan.at("stage").as_int();
    double const p = 124'439'808, shard = p / 8, slack = 1e-3 * p;
    EXPECT_NEAR(plan.at("weights").as_double(), stage == 0 ? 4 * p : 2 * (stage == 3 ? shard : p),
                slack)
        << "autocast keeps fp32 weights";
    EXPECT_NEAR(plan.at("optimizer_state").as_double(), 8 * (stage >= 1 ? shard : p), slack);
    EXPECT_EQ(plan.at("total").as_int(),
              plan.at("weights").as_int() + plan.at("gradients").as_int() +
                  plan.at("master_weights").as_int() + plan.at("optimizer_state").as_int() +
                  plan.at("buffers").as_int() + plan.at("attention_workspace").as_int() +
                  plan.at("activations").as_int());
    EXPECT_EQ(plan.at("attention_workspace").as_int() % (12 * 1024 * (2 * 1024 + 4)), 0)
        << "cuDNN's, per row: 12 heads with the products and a sum of each of 1024 positions";
    EXPECT_GT(plan.at("attention_workspace").as_int(), 0);
  }
  auto const activations = [&](std::size_t i) { return plans[i].at("activations").as_int(); };
  EXPECT_GT(activations(0), activations(3)) << "light";
  EXPECT_GT(activations(3), 2 * activations(6)) << "block";
}

TEST(Estimate, SaysWhatFitsAndWhatToTryFirst) {
  auto const eight = [](char const* memory) {
    return estimate(with_gpt2({"--num_gpus_per_node", "8", "--memory", memory}));
  };
  EXPECT_THAT(eight("80GiB"), HasSubstr("fits, try first"));
  EXPECT_THAT(eight("80GiB"), Not(HasSubstr("too large")));
  EXPECT_THAT(eight("100MiB"), HasSubstr("Nothing fits into 100.0 MiB per rank"));
  auto const some = eight("3GiB");
  EXPECT_THAT(some, HasSubstr("too large"));
  EXPECT_LT(some.find("too large"), some.find("fits, try first"));
}

TEST(Estimate, DeepSpeedsNumbersNeedNoModel) {
  auto const text = estimate(
      {"--all_cold", "--total_params", "2783959040", "--largest_layer_params", "65798144"});
  EXPECT_THAT(text, HasSubstr("   70.00GB |   0.25GB | offload_param=cpu"));
  EXPECT_THAT(text, Not(HasSubstr("Tessera")));
  EXPECT_THROW(estimate({"--all_cold", "--total_params", "5"}), UsageError);
  EXPECT_THROW(estimate({}), UsageError);
  EXPECT_THROW(estimate(with_gpt2({}, {"--block_size", "4096"})), ConfigError);
}

}  // namespace
}  // namespace tessera::cli
