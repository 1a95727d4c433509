#include "detail/resolvers.hpp"

#include <gmock/gmock.h>

#include "error_of.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

ResolvedConfig resolved(std::string const& json, Words words = {"--do_train"}) {
  TrainingArguments a = parse_options(words);
  if (!json.empty()) a.deepspeed = {ConfigTree::parse(json, "ds.json"), "ds.json"};
  return resolve(a, 2, 64);
}

/// Dtypes of weights and of products.
TEST(Precision, SixteenBitsMeanAutocastOrTheCastModel) {
  struct Row {
    char const* json;
    std::vector<std::string> flags;
    Dtype weights, products;
  };
  for (
      Row const& row : std::initializer_list<Row>{
          {"", {"--bf16"}, Dtype::fp32, Dtype::bf16},
          {"", {"--bf16", "--fsdp", "full_shard"}, Dtype::bf16, Dtype::bf16},
          {"", {"--dtype", "bfloat16", "--bf16"}, Dtype::bf16, Dtype::bf16},
          {"", {"--dtype", "bfloat16"}, Dtype::bf16, Dtype::bf16},
          {R"({"bf16": {"enabled": "auto"}})", {"--bf16"}, Dtype::bf16, Dtype::bf16},
          {"{}", {"--fp16"}, Dtype::fp16, Dtype::fp16},
          {R"({"torch_autocast": {"enabled": true}})", {}, Dtype::fp32, Dtype::bf16},
          {R"({"torch_autocast": {"enabled": true, "dtype": "float16"}, "zero_optimization": {"stage": 2}})",
           {},
           Dtype::fp32,
           Dtype::fp16},
          {R"({"amp": {"enabled": true}})", {}, Dtype::fp32, Dtype::fp16},
          {R"({"amp": {"enabled": true, "opt_level": "O2"}})", {}, Dtype::fp16, Dtype::fp16},
          {R"({"amp": {"enabled": true, "opt_level": "O0"}})", {}, Dtype::fp32, Dtype::fp32}}) {
    auto const c = resolved(row.json, row.flags);
    EXPECT_EQ(c.dtype, row.weights) << row.json;
    EXPECT_EQ(c.product_dtype, row.products) << row.json;
    EXPECT_EQ(c.dynamic_loss_scale, row.products == Dtype::fp16) << row.json;
  }
  EXPECT_EQ(
      resolved(R"({"torch_autocast": {"enabled": true, "dtype": "float16"}})").loss_scale_growth,
      optim::ScaleGrowth::torch);
}

/// runtime/config.py of DeepSpeed 0.19.8: DtypeEnum, and get_communication_data_type().
TEST(Precision, DtypesHaveTheNamesThatDeepSpeedTakes) {
  auto const accumulates = [](std::string const& name) {
    return resolved(R"({"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": ")" + name +
                    "\"}}")
        .accumulation_dtype;
  };
  for (char const* name : {"fp32", "float32", "float", "torch.float32"})
    EXPECT_EQ(accumulates(name), Dtype::fp32) << name;
  for (char const* name : {"bf16", "bfloat16", "torch.bfloat16"})
    EXPECT_EQ(accumulates(name), Dtype::bf16) << name;
  for (char const* name : {"float16", "half", "torch.float16", "fp16"})
    EXPECT_EQ(resolved(concat(R"({"torch_autocast": {"enabled": true, "dtype": ")", name, "\"}}"))
                  .product_dtype,
              Dtype::fp16)
        << name;
  EXPECT_EQ(resolved(R"({"bf16": {"enabled": true}, "communication_data_type": "FP32"})")
                .communication_dtype,
            Dtype::fp32);
  for (char const* wrong : {"int8", "torch.int8", "float64", "Float32"})
    EXPECT_THAT(error_of<ConfigError>([&] { accumulates(wrong); }),
                HasSubstr("must be one of fp32, fp16, bf16"))
        << wrong;
}

TEST(Precision, Fp8IsAPartOfBf16) {
  EXPECT_FALSE(resolved("", {"--bf16"}).fp8);
  for (Words const& flags : {Words{"--bf16", "--fp8", "true"}, {"--dtype", "bfloat16", "--fp8"}}) {
    auto const c = resolved("", flags);
    EXPECT_TRUE(c.fp8);
    EXPECT_EQ(c.product_dtype, Dtype::bf16);
  }
  EXPECT_FALSE(resolved("", {"--bf16", "--fp8", "true", "--fp8", "false"}).fp8);
  EXPECT_THAT(error_of<ConfigError>([] {
                resolved("", {"--fp8", "true"});
              }),
              HasSubstr("--fp8 true with products in fp32: fp8 products are part of bf16 training; "
                        "give --bf16 too"));
}

TEST(Precision, MasterWeightsStartRoundedUnderDeepSpeed) {
  EXPECT_TRUE(resolved(R"({"bf16": {"enabled": true}})").round_master_weights);
  EXPECT_FALSE(resolved("{}").round_master_weights) << "fp32 weights";
  EXPECT_FALSE(resolved("", {"--dtype", "bfloat16"}).round_master_weights);
  EXPECT_TRUE(
      resolved("", {"--dtype", "bfloat16", "--master_weights", "rounded"}).round_master_weights);
  EXPECT_FALSE(resolved(R"({"bf16": {"enabled": true}})", {"--master_weights", "file"})
                   .round_master_weights);
}

/// DeepSpeed's keys give 16 bits to master weights, states and gradients between micro-steps.
TEST(Precision, SixteenBitMasterWeightsAreDeepSpeeds) {
  struct Row {
    char const *blocks, *zero;
    Dtype master, states, accumulation;
  };
  char const* const masters = R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true})";
  char const* const states =
      R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true})";
  char const* const half = R"("fp16": {"enabled": true, "fp16_master_weights_and_grads": true})";
  char const* const half_states =
      R"("fp16": {"enabled": true, "fp16_master_weights_and_grads": true}, "optimizer": {"type": "Adam", "params": {"fp32_optimizer_states": false}})";
  for (Row const& row : std::initializer_list<Row>{
           {masters, R"("stage": 1)", Dtype::bf16, Dtype::fp32, Dtype::bf16},
           {states, R"("stage": 3)", Dtype::bf16, Dtype::bf16, Dtype::bf16},
           {states, R"("stage": 2, "offload_optimizer": {"device": "cpu"})", Dtype::bf16,
            Dtype::bf16, Dtype::bf16},
           {half, R"("stage": 2)", Dtype::fp16, Dtype::fp32, Dtype::fp16},
           {half_states, R"("stage": 2)", Dtype::fp16, Dtype::fp16, Dtype::fp16},
           {R"("bf16": {"enabled": true})", R"("stage": 2)", Dtype::fp32, Dtype::fp32,
            Dtype::fp32}}) {
    auto const c = resolved(concat("{", row.blocks, R"(, "zero_optimization": {)", row.zero, "}}"));
    EXPECT_EQ(c.master_dtype, row.master) << row.blocks;
    EXPECT_EQ(c.state_dtype, row.states) << row.blocks;
    EXPECT_EQ(c.accumulation_dtype, row.accumulation) << row.blocks;
  }
}

/// The refusals of DeepSpeed's configuration, and of optimizers that are not element-wise.
TEST(Precision, SixteenBitMasterWeightsNeedStagesAndTheirDtype) {
  auto const message = [](std::string const& blocks, int stage) {
    return error_of<ConfigError>([&] {
      resolved(concat("{", blocks, R"(, "zero_optimization": {"stage": )", stage, "}}"));
    });
  };
  char const* const masters = R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true})";
  EXPECT_THAT(message(masters, 0), HasSubstr("at stage 0"));
  EXPECT_THAT(message(R"("bf16": {"bf16_master_weights_and_grads": true})", 1),
              HasSubstr("the weights are fp32; set bf16.enabled"));
  EXPECT_THAT(message(R"("fp16": {"fp16_master_weights_and_grads": true},
                         "bf16": {"enabled": true})",
                      1),
              HasSubstr("the weights are bf16; set fp16.enabled"));
  EXPECT_THAT(message(R"("bf16": {"enabled": true, "bf16_optimizer_states": true})", 1),
              HasSubstr("bf16_master_weights_and_grads is not"));
  for (char const* type : {"Lamb", "Muon"})
    EXPECT_THAT(message(concat(masters, R"(, "optimizer": {"type": ")", type, R"("})"), 1),
                HasSubstr(concat("with optimizer ", type)));
  auto const c = resolved(R"({"bf16": {"enabled": true}, "zero_optimization": {"stage": 1},
                              "optimizer": {"type": "Adam", "params": {"fp32_optimizer_states": false}}})");
  EXPECT_EQ(c.state_dtype, Dtype::fp32);
  EXPECT_THAT(c.notes, Contains(HasSubstr("the states stay fp32")));
}

TEST(Precision, Stage0SaysThatEveryOverflowHalvesTheScale) {
  auto const notes_of = [](int stage) {
    return resolved(concat(R"({"fp16": {"enabled": true, "hysteresis": 4},
                             "zero_optimization": {"stage": )",
                           stage, "}}"))
        .notes;
  };
  EXPECT_THAT(notes_of(0), Contains(HasSubstr("every overflow halves")));
  EXPECT_THAT(notes_of(1), testing::Not(Contains(HasSubstr("every overflow halves"))));
}

TEST(Precision, FullEvalCastsTheModelOutsideOfTraining) {
  EXPECT_EQ(resolved("", {"--do_eval", "--fp16_full_eval"}).dtype, Dtype::fp16);
  EXPECT_EQ(resolved("", {"--do_eval", "--bf16", "--bf16_full_eval"}).dtype, Dtype::bf16);
  EXPECT_EQ(resolved("", {"--do_train", "--bf16", "--bf16_full_eval"}).dtype, Dtype::fp32);
  EXPECT_THAT(error_of<UsageError>([] {
                resolved("", {"--do_train", "--bf16", "--fp16_full_eval"});
              }),
              HasSubstr("without --do_train"));
}

TEST(Precision, KeysOfTheAverageAreTaken) {
  auto const c = resolved(
      R"({"prescale_gradients": true, "gradient_predivide_factor": 4, "gradient_allreduce_op": "sum",
      "zero_optimization": {"reduce_scatter": false}})");
  EXPECT_TRUE(c.prescale_gradients);
  EXPECT_EQ(c.gradient_predivide_factor, 4.0);
  EXPECT_EQ(c.gradient_allreduce_op, "sum");
  EXPECT_FALSE(c.reduce_scatter);
  EXPECT_EQ(c.origins.at("reduce_scatter"), Origin::deepspeed);
}

std::string refusal(std::string const& json) {
  return error_of<ConfigError>([&] { (void)resolved(json); });
}

TEST(Precision, ReduceScattersDivideBeforeThem) {
  auto const of = [](int stage, std::string const& keys) {
    return refusal(concat("{", keys, R"(, "zero_optimization": {"stage": )", stage, "}}"));
  };
  std::string const sum = R"("gradient_allreduce_op": "sum")",
                    prescale = R"("prescale_gradients": true)",
                    predivide = R"("gradient_predivide_factor": 2)";
  for (auto const& keys : {sum, prescale, predivide}) EXPECT_EQ(of(1, keys), "");
  EXPECT_EQ(of(2, sum), "");
  EXPECT_THAT(of(3, sum), HasSubstr("gradient_allreduce_op is sum at stage 3"));
  EXPECT_THAT(of(2, prescale), HasSubstr("prescale_gradients is true at stage 2"));
  EXPECT_THAT(of(3, predivide), HasSubstr("gradient_predivide_factor is 2 at stage 3"));
  EXPECT_EQ(refusal(R"({"prescale_gradients": true,
                        "zero_optimization": {"stage": 2, "reduce_scatter": false}})"),
            "");
}

TEST(Precision, GradientsAreAccumulatedInFp32OrTheDtypeOfTheWeights) {
  auto const of = [](char const* dtype) {
    return refusal(concat(R"({"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": ")",
                          dtype, "\"}}"));
  };
  EXPECT_EQ(of("fp32") + of("bf16"), "");
  EXPECT_THAT(of("fp16"), HasSubstr("grad_accum_dtype is fp16 with bf16 weights"));
}

}  // namespace
}  // namespace tessera::config
