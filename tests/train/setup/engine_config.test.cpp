#include "tessera/train/setup/engine_config.hpp"

#include <gtest/gtest.h>

namespace tessera::train {
namespace {

config::ResolvedConfig resolved(std::string const& json,
                                std::vector<std::string> const& flags = {}) {
  std::vector<std::string> words{"--model_name_or_path", "gpt2", "--train_file", "a.txt",
                                 "--do_train"};
  words.insert(words.end(), flags.begin(), flags.end());
  config::TrainingArguments a = config::parse_arguments(words);
  if (!json.empty()) a.deepspeed = ConfigTree::parse(json, "ds.json");
  return config::resolve(a, 1, 64);
}

TEST(EngineConfig, EngineReadsTheResolvedValues) {
  auto const e = engine_config(resolved(
      R"({"fp16": {"enabled": true, "loss_scale": 128}, "zero_optimization": {"stage": 3, "overlap_comm": false,
      "reduce_bucket_size": 9000007, "allgather_bucket_size": 7, "prefetch_bucket_size": 8, "max_live_parameters": 9}, "gradient_accumulation_steps": 5})",
      {"--weight_decay", "0.2"}));
  EXPECT_EQ(e.stage, 3);
  EXPECT_EQ(e.dtype, Dtype::fp16);
  EXPECT_EQ(e.accumulation_steps, 5);
  EXPECT_EQ(e.reduce_bucket_size, 9'000'007);
  EXPECT_EQ(e.allgather_bucket_size, 8'388'608) << "smaller messages cost latency only";
  EXPECT_EQ(e.prefetch_bucket_size, 8);
  EXPECT_EQ(e.max_live_parameters, 9);
  EXPECT_FALSE(e.overlap_comm || e.loss_scaler.dynamic);
  EXPECT_EQ(e.loss_scaler.static_scale, 128.0);
  EXPECT_EQ(e.optimizer, optim::make_spec("AdamW", {{"weight_decay", 0.2}}));
  EXPECT_EQ(e.max_grad_norm, 1.0);
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

}  // namespace
}  // namespace tessera::train
