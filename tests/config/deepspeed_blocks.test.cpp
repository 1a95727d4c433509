#include "detail/deepspeed_zero.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "error_of.hpp"
#include "tessera/config/option_table.hpp"
#include "tessera/config/option_values.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config::detail {
namespace {

using ::testing::HasSubstr;

OptionValues parsed(char const* json) {
  return parse_nested(deepspeed_table(),
                      ConfigTree::parse(json, "ds.json", ConfigTree::Syntax::relaxed), "ds.json");
}
std::string refusal(char const* json) {
  return error_of<ConfigError>([&] { parsed(json); });
}

/// A block that takes any JSON is refused, or its members are names that users choose, or they are
/// checked with their values (quantization_keys.test.cpp).
TEST(DeepSpeedBlocks, NoBlockAcceptsAnything) {
  std::set<std::string> const chosen_by_users{
      "curriculum_learning.schedule_config",
      "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics",
      "data_efficiency.data_routing.random_ltd",
      "zero_optimization.zeropp_loco_param",
      "autotuning.arg_mappings",
      "autotuning.model_info",
      "quantize_training.quantize_bits",
      "quantize_training.quantize_schedule",
      "quantize_training.fp16_mixed_quantize"};
  for (auto const& option : deepspeed_table().options())
    EXPECT_TRUE(option.type != OptionType::json || option.support == Support::refused ||
                chosen_by_users.contains(option.name))
        << option.name << " takes any JSON";
}

TEST(DeepSpeedBlocks, MembersAreChecked) {
  EXPECT_THAT(refusal(R"({"flops_profiler": {"enabled": true, "profil_step": 5}})"),
              HasSubstr("did you mean flops_profiler.profile_step?"));
  EXPECT_THAT(refusal(R"({"comms_logger": {"enabled": "maybe"}})"), HasSubstr("true or false"));
  EXPECT_THAT(refusal(R"({"wandb": {"enabled": false, "projct": "a"}})"),
              HasSubstr("did you mean wandb.project?"))
      << "DeepSpeed's typed blocks refuse members that they do not know";
  EXPECT_THAT(refusal(R"({"elasticity": {"enabled": false, "micro_batch_sizes": "2,4"}})"),
              HasSubstr("a list of numbers"));
  EXPECT_THAT(refusal(R"({"wandb": {"enabled": true}})"), HasSubstr("tensorboard or csv_monitor"));
  EXPECT_NO_THROW(parsed(R"({"compression_training": {}, "wandb": {"enabled": false, "team": "a"},
      "elasticity": {"enabled": false, "micro_batch_sizes": [2, 4]}})"));
}

/// These values do nothing, as in DeepSpeed 0.19.8 and, for blocks that it has removed, 0.18.
TEST(DeepSpeedBlocks, WhatMeansOffPasses) {
  for (char const* off : {
           R"({"tensor_parallel": {"autotp_size": 1}})",
           R"({"tensor_parallel": {"autotp_size": 0, "tp_overlap_comm": false}})",
           R"({"tensor_parallel": {"autotp_size": 1, "tp": {"tp_size": 1, "tp_grain_size": 1}}})",
           R"({"tensor_parallel": {}})",
           R"({"pipeline": {"stages": "auto", "partition": "best", "pipe_partitioned": true}})",
           R"({"pipeline": {"seed_layers": false, "activation_checkpoint_interval": 0}})",
           R"({"nebula": {"enabled": false, "load_path": null, "save_mode": "x"}})",
           R"({"elasticity": {"enabled": false, "max_gpu": 4}})",
           R"({"progressive_layer_drop": {"thetaa": 0.5}})",
           R"({"compression_training": {"enabled": false}})",
           R"({"compression_training": {"weight_quantization": {"shared_parameters":
               {"enabled": false, "quantizer_kernel": true}, "different_groups": {}}}})",
           R"({"compression_training": {"layer_reduction": {"enabled": false}}})",
           R"({"weight_quantization": {"enabled": false, "quantized_initialization": {"b": 8}}})",
           R"({"weight_quantization": {"quantized_initialization": {}, "post_init_quant": {}}})",
           R"({"sparse_attention": {"mode": "dense", "block": 16}})",
           R"({"datastates_ckpt": false, "sequence_parallel_size": 1, "data_parallel_size": 1})",
           R"({"zero_optimization": {"zenflow": null}})",
           R"({"graph_harvesting": false, "sparse_gradients": false})",
       })
    EXPECT_EQ(refusal(off), "") << off;
  for (char const* on : {
           R"({"tensor_parallel": {"autotp_size": 2}})",
           R"({"tensor_parallel": {"tp": {"tp_size": 4}}})",
           R"({"pipeline": {"stages": 2}})",
           R"({"nebula": {"enabled": true}})",
           R"({"compression_training": {"weight_quantization": {"shared_parameters":
               {"enabled": true}}}})",
           R"({"weight_quantization": {"post_init_quant": {"fc": {"num_bits": 8}}}})",
           R"({"sparse_attention": {"mode": "fixed"}})",
           R"({"sequence_parallel_size": 2})",
       })
    EXPECT_THAT(refusal(on), HasSubstr("is not supported")) << on;
}

}  // namespace
}  // namespace tessera::config::detail
