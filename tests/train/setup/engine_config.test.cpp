#include "tessera/train/setup/engine_config.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "error_of.hpp"

namespace tessera::train {
namespace {

config::ResolvedConfig resolved(std::string const& json,
                                std::vector<std::string> const& flags = {}) {
  std::vector<std::string> words{"--model_name_or_path", "gpt2", "--train_file", "a.txt",
                                 "--do_train"};
  words.insert(words.end(), flags.begin(), flags.end());
  config::TrainingArguments a = config::parse_arguments(words);
  if (!json.empty()) a.deepspeed = {ConfigTree::parse(json, "ds.json"), "ds.json"};
  return config::resolve(a, 1, 64);
}

TEST(EngineConfig, EngineReadsTheResolvedValues) {
  auto const e = engine_config(resolved(
      R"({"fp16": {"enabled": true, "loss_scale": 128}, "zero_optimization": {"stage": 3, "overlap_comm": false,
      "reduce_bucket_size": 9000007, "allgather_bucket_size": 7, "prefetch_bucket_size": 8, "max_live_parameters": 9}, "gradient_accumulation_steps": 5})",
      {"--weight_decay", "0.2"}));
  EXPECT_EQ(zero::stage_of(e.partition), 3);
  EXPECT_EQ(e.dtype, Dtype::fp16);
  EXPECT_EQ(e.accumulation_steps, 5);
  EXPECT_EQ(e.reduce_bucket_size, 9'000'007);
  EXPECT_EQ(e.allgather_bucket_size, 8'388'608) << "smaller messages cost latency only";
  EXPECT_EQ(std::get<zero::ShardedWeights>(e.partition).prefetch_bucket_size, 8);
  EXPECT_EQ(std::get<zero::ShardedWeights>(e.partition).max_live_parameters, 9);
  EXPECT_FALSE(e.overlap_comm || e.loss_scaler.dynamic);
  EXPECT_EQ(e.loss_scaler.static_scale, 128.0);
  EXPECT_EQ(e.optimizer, optim::make_spec("AdamW", {{"weight_decay", 0.2}}));
  EXPECT_EQ(e.max_grad_norm, 1.0);
}

TEST(EngineConfig, ProductsOfAutocastAreNarrowerThanTheWeights) {
  auto const autocast = engine_config(resolved("", {"--bf16"}));
  EXPECT_EQ(autocast.dtype, Dtype::fp32);
  EXPECT_EQ(autocast.product_dtype, Dtype::bf16);
  EXPECT_EQ(engine_config(resolved("", {"--bf16", "--fp8", "true"})).product_dtype, Dtype::fp32)
      << "fp8 products convert fp32 weights";
}

TEST(EngineConfig, AUnitIsOneOperationOfNccl) {
  auto const e = engine_config(
      resolved(R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": 9000007}})"), {},
      UnitMessages::one);
  for (auto const limit : {e.reduce_bucket_size, e.allgather_bucket_size})
    EXPECT_EQ(limit, std::numeric_limits<std::int64_t>::max());
}

TEST(EngineConfig, AQuantizedBaseComputesAsTheOtherProducts) {
  EXPECT_FALSE(engine_config(resolved("")).quantized_base);
  model::LoraOptions lora;
  lora.transposed = true;
  auto const base = engine_config(resolved("", {"--use_peft_lora", "--load_in_4bit", "--bf16",
                                                "--use_bnb_nested_quant", "true",
                                                "--bnb_4bit_compute_dtype", "bfloat16"}),
                                  lora)
                        .quantized_base;
  ASSERT_TRUE(base);
  EXPECT_TRUE(base->double_quantized && base->transposed && !base->is_int8);
  EXPECT_EQ(base->stored_dtype, Dtype::fp32);
  EXPECT_EQ(base->compute_dtype, Dtype::bf16);
  EXPECT_TRUE(
      engine_config(resolved("", {"--use_peft_lora", "--load_in_8bit"})).quantized_base->is_int8);
  auto const other =
      resolved("", {"--use_peft_lora", "--load_in_4bit", "--bnb_4bit_compute_dtype", "bfloat16"});
  EXPECT_NE(error_of<ConfigError>([&] {
              (void)engine_config(other);
            }).find("products of this run are in float32"),
            std::string::npos);
}

TEST(EngineConfig, ReductionsOverlapUnlessTheFileSaysNo) {
  EXPECT_TRUE(engine_config(resolved(R"({"zero_optimization": {"stage": 2}})")).overlap_comm);
  EXPECT_FALSE(
      engine_config(resolved(R"({"zero_optimization": {"stage": 2, "overlap_comm": false}})"))
          .overlap_comm);
}

TEST(EngineConfig, Stage0HasNoHysteresis) {
  std::string const fp16 = R"("fp16": {"enabled": true, "hysteresis": 4})";
  EXPECT_EQ(engine_config(resolved("{" + fp16 + "}")).loss_scaler.hysteresis, 1);
  EXPECT_EQ(engine_config(resolved("{" + fp16 + R"(, "zero_optimization": {"stage": 1}})"))
                .loss_scaler.hysteresis,
            4);
}

TEST(EngineConfig, GradientsAreAveragedAsTheKeysSay) {
  EXPECT_EQ(engine_config(resolved("")).reduction, zero::GradientReduction{});
  auto const e = engine_config(resolved(
      R"({"prescale_gradients": true, "gradient_predivide_factor": 4, "gradient_allreduce_op": "sum",
      "zero_optimization": {"stage": 1, "reduce_scatter": false}})"));
  EXPECT_EQ(e.reduction,
            (zero::GradientReduction{.average = zero::GradientAverage::sum,
                                     .division = zero::GradientDivision::before_reduction,
                                     .predivide_factor = 4.0,
                                     .reduce_scatter = false}));
}

TEST(EngineConfig, HasTheSettingsOfItsStage) {
  auto c = resolved(R"({"zero_optimization": {"stage": 3, "zero_quantized_weights": true,
      "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}})");
  auto const weights = std::get<zero::ShardedWeights>(engine_config(c).partition);
  EXPECT_EQ(weights.quantized_weight_bits, 8);
  EXPECT_TRUE(weights.weight_offload && weights.optimizer_offload && !weights.optimizer_swap);
  c.stage = 1;
  EXPECT_TRUE(std::get<zero::ShardedStates>(engine_config(c).partition).optimizer_offload);
  c.stage = 0;
  EXPECT_TRUE(std::holds_alternative<zero::Replicated>(engine_config(c).partition));
}

TEST(EngineConfig, RefusesWhatAMemorySpaceHasNot) {
  using enum memory::MemorySpace;
  auto const refusal = [](config::ResolvedConfig const& c, memory::MemorySpace space) {
    return error_of<ConfigError>([&] { check_space(c, space); });
  };
  std::string const start = R"({"zero_optimization": {"stage": 2, "offload_optimizer": {)",
                    nvme = R"("device": "nvme", "nvme_path": "/drive"}})";
  auto const lamb = resolved(start + R"("device": "cpu", "ratio": 0.5}},
                             "optimizer": {"type": "Lamb"}})");
  EXPECT_NE(refusal(lamb, device).find("leave ratio out"), std::string::npos);
  EXPECT_NO_THROW(check_space(lamb, host)) << "no effect";
  auto const half = resolved(start + nvme + R"(, "bf16": {"enabled": true,
                             "bf16_master_weights_and_grads": true}})");
  EXPECT_NE(refusal(half, device).find("use fp32 master weights"), std::string::npos);
  EXPECT_NO_THROW(check_space(half, host));
  auto codes = resolved(start + nvme + "}");
  EXPECT_NO_THROW(check_space(codes, host));
  codes.optimizer = optim::make_spec("AdamW8bit");
  EXPECT_NE(refusal(codes, host).find("no state of it goes to a drive"), std::string::npos);
  EXPECT_NO_THROW(check_space(codes, device)) << "the master weights";
  auto const tree = resolved("", {"--reproducible", "world"});
  EXPECT_NE(refusal(tree, device).find("use the CPU"), std::string::npos);
  EXPECT_NO_THROW(check_space(tree, host));
}

}  // namespace
}  // namespace tessera::train
