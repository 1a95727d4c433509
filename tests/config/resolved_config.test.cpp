#include "resolved_case.hpp"

#include <gmock/gmock.h>

#include <filesystem>

#include "tessera/config/learning_rate.hpp"

namespace tessera::config {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

/// gpt2-xl under run_clm.py on one and two GPUs: everything "auto".
char const* const gpt2_xl = R"({
  "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
  "zero_optimization": {"stage": 3, "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": 1e9, "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
    "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": true},
  "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"})";

TEST(ResolvedConfig, AutoTakesTheFlagsAsTransformersFillsThem) {
  auto const c = resolved(
      gpt2_xl,
      {"--fp16", "--per_device_train_batch_size", "2", "--learning_rate", "3e-4", "--adam_beta2",
       "0.95", "--weight_decay", "0.1", "--max_grad_norm", "0.5", "--warmup_steps", "10"},
      2, 1600);
  EXPECT_EQ(c.dtype, Dtype::fp16);
  EXPECT_TRUE(c.dynamic_loss_scale && c.skip_on_nonfinite && c.overlap_comm);
  EXPECT_EQ(c.train_batch_size, 4);
  EXPECT_EQ(c.micro_batch_size, 2);
  EXPECT_EQ(c.accumulation_steps, 1);
  EXPECT_EQ(c.stage, 3);
  EXPECT_EQ(c.reduce_bucket_size, 1600 * 1600);
  EXPECT_EQ(c.prefetch_bucket_size, 2304000);
  EXPECT_EQ(c.param_persistence_threshold, 16000);
  EXPECT_EQ(c.learning_rate, 3e-4);
  EXPECT_EQ(c.optimizer.value("beta2"), 0.95);
  EXPECT_EQ(c.optimizer.value("weight_decay"), 0.1);
  EXPECT_EQ(c.max_grad_norm, 0.5);
  EXPECT_EQ(c.optimizer.groups, optim::one_group());
  EXPECT_EQ(c.communication_dtype, Dtype::fp16);
  EXPECT_EQ(c.accumulation_dtype, Dtype::fp32);
  EXPECT_EQ(
      scheduler_section(c, 500).dump(),
      R"({"type":"WarmupLR","params":{"warmup_min_lr":0.0,"warmup_max_lr":0.0003,"warmup_num_steps":10}})");
  EXPECT_EQ(scheduler_section(resolved(gpt2_xl), 500).at("params").at("warmup_num_steps").as_int(),
            1);
  EXPECT_EQ(scheduler_section(resolved(gpt2_xl, {"--warmup_ratio", "0.03"}), 501)
                .at("params")
                .at("warmup_num_steps")
                .as_int(),
            16);
}

struct Good {
  char const* json;
  Words flags;
};

TEST(ResolvedConfig, ConfigurationsOfUsersParse) {
  for (
      auto const& [json, flags] : std::vector<Good>{
          {gpt2_xl, {"--bf16"}},
          {R"({"zero_optimization": {"stage": 0}})", {}},
          {R"({"zero_optimization": {"stage": 1}})", {}},
          {R"({"zero_optimization": {"stage": 2, "allgather_partitions": true, "allgather_bucket_size": 3e8, "overlap_comm": true,
                "reduce_scatter": true, "reduce_bucket_size": 3e8, "contiguous_gradients": true}})",
           {}},
          {R"({"fp16": {"enabled": true, "auto_cast": false, "loss_scale": 0, "initial_scale_power": 16, "loss_scale_window": 1000,
                "hysteresis": 2, "consecutive_hysteresis": false, "min_loss_scale": 1}})",
           {}},
          {R"({"bf16": {"enabled": true}})", {}},
          {R"({"bfloat16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}})", {"--bf16"}},
          {R"({"communication_data_type": "fp32"})", {"--fp16"}},
          {R"({"amp": {"enabled": "auto", "opt_level": "auto"}})", {}},
          {R"({"zero_force_ds_cpu_optimizer": false})", {}},
          {R"({"zero_optimization": {"stage3_gather_16bit_weights_on_model_save": true}})", {}},
          {R"({"optimizer": {"type": "Adam", "params": {"lr": "auto", "betas": [0.9, 0.95], "eps": "auto", "weight_decay": "auto"
                "torch_adam": true, "adam_w_mode": true}}})",
           {"--adam_beta2", "0.95"}},
          {R"({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 5e-6, "warmup_max_lr": "auto",
                "warmup_num_steps": "auto", "total_num_steps": "auto"}}})",
           {}},
          {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0,      //auto
                "warmup_max_lr": 0.001,  //auto
                "warmup_num_steps": 1000 //auto
                }}})",
           {}},
          {R"({"optimizer": {"type": "AdamW", "params": {"lr": 11e-3, "betas": [0.8, 0.999],   //--adam_beta1 --adam_beta2
                "eps": 1e-8, "weight_decay": 0.01}}})",
           {}},
          {R"({"gradient_clipping": 1.0, "steps_per_print": 10, "wall_clock_breakdown": false, "dump_state":false})",
           {}},
          {R"({"train_batch_size": 1, "train_micro_batch_size_per_gpu": 1})", {}},
      })
    EXPECT_EQ(error_of(json, flags), "") << json;
}

/// What DeepSpeed's typed blocks convert, and what its users leave out.
TEST(ResolvedConfig, ValuesAreConvertedAsInDeepSpeed) {
  EXPECT_EQ(resolved(R"({"zero_optimization": {"stage": "2", "overlap_comm": 1}})").stage, 2);
  EXPECT_EQ(resolved(R"({"zero_optimization": {"stage": true}})").stage, 1);
  EXPECT_EQ(resolved("{zero_optimization: {stage: 3\n}\nfp16: {enabled: \"True\"}}").dtype,
            Dtype::fp16);
  EXPECT_EQ(resolved(R"({"fp16": {"enabled": true, "auto_cast": "auto", "loss_scale": "128"}})")
                .static_loss_scale,
            128.0);
  EXPECT_NO_THROW(scheduler_section(resolved(R"({"scheduler": {"type": "WarmupLR", "params":
      {"warmup_num_steps": 0, "warmup_max_lr": [0.1, 0.1]}}})"),
                                    10));
  EXPECT_NO_THROW(learning_rate_schedule(resolved(R"({"scheduler": {"type": "WarmupLR", "params":
      {"warmup_num_steps": 0}}})"),
                                         10));
  EXPECT_TRUE(resolved(R"({"dataloader_drop_last": true})").drop_last);
  EXPECT_TRUE(resolved("", {"--dataloader_drop_last"}).drop_last);
  EXPECT_FALSE(resolved("").drop_last);
  EXPECT_NO_THROW(resolved(R"({"disable_python_gc": true, "activation_checkpointing":
      {"partition_activations": false, "number_checkpoints": null}})"));
}

TEST(ResolvedConfig, ActivationCheckpointsLeaveTheDeviceWhereBlocksAreRecomputed) {
  char const* const json = R"({"activation_checkpointing": {"cpu_checkpointing": true}})";
  auto const with = resolved(json, {"--gradient_checkpointing"}), without = resolved(json);
  EXPECT_TRUE(with.cpu_checkpointing && without.cpu_checkpointing);
  EXPECT_FALSE(resolved("{}").cpu_checkpointing);
  EXPECT_THAT(with.notes_on_cpus, ::testing::ElementsAre(::testing::HasSubstr("computes on CPUs")));
  EXPECT_THAT(with.notes, ::testing::Each(::testing::Not(::testing::HasSubstr("no effect"))));
  EXPECT_TRUE(without.notes_on_cpus.empty());
  EXPECT_THAT(without.notes,
              ::testing::Contains(::testing::HasSubstr("without --gradient_checkpointing")));
}

TEST(ResolvedConfig, UpdatesAreDelayedOnTheCpuOnly) {
  char const* const json =
      R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})";
  std::vector<std::string> const from_step_3{"--delayed_update_from_step", "3"};
  EXPECT_EQ(resolved(json).offload.delay_from, 0);
  EXPECT_EQ(resolved(json, from_step_3).offload.delay_from, 3);
  auto const c = resolved(json, from_step_3);
  EXPECT_THAT(c.notes_on_cpus, ::testing::ElementsAre(::testing::HasSubstr(
                                   "offloading to the CPU: no effect where the model computes")));
  EXPECT_THAT(c.notes,
              ::testing::Each(::testing::Not(::testing::HasSubstr("offloading to the CPU"))));
  for (auto const* other : {"{}", R"({"zero_optimization": {"stage": 2, "offload_optimizer":
      {"device": "nvme", "nvme_path": "/tmp"}}})",
                            ""})
    EXPECT_THROW(resolved(other, from_step_3), ConfigError);
}

TEST(ResolvedConfig, FilesOfTheProjectParse) {
  std::size_t count = 0;
  for (auto const& entry :
       std::filesystem::directory_iterator(std::string(TESSERA_TEST_DATA) + "/../configs")) {
    if (!entry.path().filename().string().starts_with("ds_")) continue;
    std::string const name = entry.path().stem().string();
    auto const c = resolved("", {"--deepspeed", entry.path().string()}, 2);
    EXPECT_EQ(c.stage, name[7] - '0') << name;
    EXPECT_EQ(c.dtype, name.ends_with("fp16")   ? Dtype::fp16
                       : name.ends_with("bf16") ? Dtype::bf16
                                                : Dtype::fp32)
        << name;
    EXPECT_EQ(c.train_batch_size, 16) << name;
    ++count;
  }
  EXPECT_GE(count, 6u);
}

struct Bad {
  char const* json;
  char const* part;
};

/// DeepSpeed reads the block at stage 3 only.
TEST(ResolvedConfig, OffloadedParametersNeedStageThree) {
  for (
      char const* json :
      {R"({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})",
       R"({"zero_optimization": {"stage": 1, "offload_param": {"device": "nvme", "nvme_path": "/a"}}})"}) {
    auto const c = resolved(json);
    EXPECT_EQ(c.offload.parameters, OffloadDevice::none) << json;
    EXPECT_THAT(c.notes,
                Contains(HasSubstr("offload_param: no effect at zero_optimization.stage")));
  }
}

TEST(ResolvedConfig, KeysThatDeepSpeedIgnoresHaveNoEffect) {
  auto const c = resolved(R"({"local_rank": 0, "seed": 5, "steps_per_print": "inf"})");
  EXPECT_EQ(c.reporting.steps_per_print, 0);
  for (char const* endless : {"Infinity", ".inf"})
    EXPECT_EQ(
        resolved(concat(R"({"steps_per_print": ")", endless, "\"}")).reporting.steps_per_print, 0);
}

TEST(ResolvedConfig, WhatIsRefusedSaysWhy) {
  for (
      auto const& [json, part] : std::vector<Bad>{
          {R"({"zero_optimization": {"stage": 0, "offload_optimizer": {"device": "nvme", "nvme_path": "/tmp"}}})",
           "needs zero_optimization.stage 1, 2 or 3"},
          {R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme"}}})",
           "nvme_path is missing"},
          {R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": "/tmp", "ratio": 0.5}}})",
           "offload_optimizer.ratio is 0.5"},
          {R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme", "nvme_path": "/tmp"}}, "aio": {"block_size": 5000}})",
           "aio.block_size is 5000; it must be a multiple of 4096"},
          {R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/a::/b"}}})",
           "nvme_path \"/a::/b\" has an empty name"},
          {R"({"optimizer": {"params": {"freeze_step": 2}, "type": "MuAdam"}})",
           "optimizer.type \"MuAdam\" is not supported: it is not implemented; use AdamW"},
          {R"({"optimizer": {"type": "muadam"}})", "\"MuAdam\" is not supported"},
          {R"({"optimizer": {"type": "ZeroOneAdam", "params": {"lr": 1e-3}}})",
           "optimizer.type \"ZeroOneAdam\" is not supported: it is not implemented; use OneBitAdam "
           "or AdamW"},
          {R"({"optimizer": {"params": {"var_freeze_step": 2}, "type": "ZeroOneAdam"}})",
           "use OneBitAdam or AdamW"},
          {R"({"optimizer": {"type": "AdmW"}})", "did you mean AdamW?"},
          {R"({"optimizer": {"params": {}}})", "the section 'optimizer' needs a \"type\""},
          {R"({"optimizer": {"type": "Adam", "params": {"max_grad_norm": 1}}})",
           "use gradient_clipping"},
          {R"({"optimizer": {"type": "Adam", "params": {"betas": [0.9, 1.5]}}})",
           "two numbers from 0 to below 1"},
          {R"({"optimizer": {"type": "Adam", "params": {"betas": "0.9"}}})",
           "two numbers from 0 to below 1"},
          {R"({"scheduler": {"type": "StepLR"}})", "it must be one of WarmupLR"},
          {R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1}}})",
           "scheduler.type OneCycle needs scheduler.params.cycle_max_lr"},
          {R"({"scheduler": {"type": "OneCycle", "params": {"cycle_momentum": false}}})",
           "scheduler.type OneCycle needs scheduler.params.cycle_min_lr"},
          {R"({"scheduler": {"type": "WarmupDecayLR"}})", "needs scheduler.params.total_num_steps"},
          {R"({"zero_optimization": {"zero_quantized_weights": true}})",
           "zero_quantized_weights is true at stage 0"},
          {R"({"elasticity": {"enabled": true}})",
           "elasticity.enabled is not supported: remove the block"},
          {R"({"compression_training": {"weight_quantization": {"shared_parameters": {"enabled": true}}}})",
           "train without compression"},
          {R"({"sparse_attention": {"mode": "fixed"}})", "attention is dense"},
          {R"({"amp": {"enabled": true, "opt_level": "O3"}})", "no fp32 master weights; use O2"},
          {R"({"amp": {"enabled": true}, "zero_optimization": {"stage": 1}})",
           "amp.enabled is true at stage 1"},
          {R"({"torch_autocast": {"enabled": true}, "bf16": {"enabled": true}})",
           "torch_autocast.enabled is true, and so is bf16"},
          {R"({"gradient_cliping": 1.0})",
           "ds.json: unknown key gradient_cliping; did you mean gradient_clipping?"},
          {R"({"zero_optimization": {"satge": 2}})", "did you mean zero_optimization.stage?"},
          {R"({"fp16": {"enabled": true, "los_scale": 0}})", "did you mean fp16.loss_scale?"},
          {R"({"stage": 2})", "did you mean zero_optimization.stage?"},
          {R"({"zero_optimization": {"stage": 4}})", "it must be an integer from 0 to 3"},
          {R"({"zero_optimization": {"stage": "two"}})", "(a string); it must be an integer"},
          {R"({"train_batch_size": "2"})", "(a string); it must be an integer"},
          {"{fp16: {\nenabled: auto,  //true\n}}", "text without quotes extends"},
          {R"({"zero_optimization": {"reduce_bucket_size": 0}})", "at least 1"},
          {R"({"zero_optimization": {"prefetch_bucket_size": 1, "stage3_prefetch_bucket_size": 1}})",
           "two names of one key"},
          {R"({"bf16": {"enabled": true}, "bfloat16": {"enabled": true}})", "name the same block"},
          {R"({"bf16": {"enabled": true}, "fp16": {"enabled": true}})", "both true"},
          {R"({"fp16": {"enabled": true, "initial_scale_power": 4, "min_loss_scale": 32}})",
           "above the first scale"},
          {R"({"train_batch_size": 0})", "at least 1"},
          {R"({"steps_per_print": "auto"})", "it must be an integer"},
      })
    EXPECT_THAT(error_of(json), HasSubstr(part)) << json;
}

TEST(ResolvedConfig, FlagsAndNumbersThatDisagreeAreErrors) {
  struct Case {
    char const* json;
    Words flags;
    char const* part;
  };
  for (auto const& [json, flags, part] : std::vector<Case>{
           {R"({"gradient_clipping": 1.0})",
            {"--max_grad_norm", "0.5"},
            "gradient_clipping is 1.0 but --max_grad_norm is 0.5 (flag)"},
           {R"({"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}})",
            {"--learning_rate", "1e-4"},
            "optimizer.params.lr is 0.001 but --learning_rate"},
           {R"({"optimizer": {"type": "AdamW", "params": {"betas": [0.9, 0.95]}}})",
            {"--adam_beta2", "0.98"},
            "--adam_beta2 is 0.98"},
           {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3}}})",
            {"--learning_rate", "1e-4"},
            "warmup_max_lr is 0.001"},
           {R"({"fp16": {"enabled": false}})",
            {"--fp16"},
            "fp16.enabled is false but --fp16 is true"},
           {R"({"bf16": {"enabled": true}})",
            {"--no_bf16"},
            "bf16.enabled is true but --bf16 is false"},
           {R"({"bf16": {"enabled": true}})", {"--fp16"}, "--fp16 and bf16.enabled are both true"},
           {R"({"train_micro_batch_size_per_gpu": 4})",
            {"--per_device_train_batch_size", "2"},
            "train_micro_batch_size_per_gpu is 4 but"},
           {R"({"gradient_accumulation_steps": 4})",
            {"--gradient_accumulation_steps", "2"},
            "gradient_accumulation_steps is 4 but"},
       })
    EXPECT_THAT(error_of(json, flags), HasSubstr(part)) << json;
  auto const warm =
      resolved(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100}}})",
               {"--warmup_steps", "10"});
  EXPECT_THROW(scheduler_section(warm, 1000), ConfigError);
}

TEST(ResolvedConfig, NumbersHoldOverFlagsThatWereNotGiven) {
  auto const c = resolved(
      R"({"gradient_clipping": 0.3, "optimizer": {"type": "adam", "params": {"lr": 0.011, "betas": [0.8, 0.99], "eps": 1e-6,
      "weight_decay": 0.01, "adam_w_mode": false, "bias_correction": false}}, "bf16": {"enabled": true, "check_grad_overflow": false},
      "data_types": {"grad_accum_dtype": "bf16"}, "communication_data_type": "fp32"})");
  EXPECT_EQ(c.max_grad_norm, 0.3);
  EXPECT_EQ(c.learning_rate, 0.011);
  EXPECT_EQ(c.optimizer.value("beta1"), 0.8);
  EXPECT_EQ(c.optimizer.value("eps"), 1e-6);
  EXPECT_EQ(c.optimizer.algorithm, "Adam");
  EXPECT_EQ(c.optimizer.value("bias_correction"), 0.0);
  EXPECT_EQ(c.optimizer.groups, optim::one_group());
  EXPECT_FALSE(c.skip_on_nonfinite);
  EXPECT_EQ(c.accumulation_dtype, Dtype::bf16);
  EXPECT_EQ(c.communication_dtype, Dtype::fp32);
  EXPECT_THAT(c.notes, Contains(HasSubstr("biases and norms also decay")));
  EXPECT_EQ(resolved(R"({"optimizer": {"type": "AdamW", "params": {"adam_w_mode": false}}})")
                .optimizer.algorithm,
            "AdamW");
}

TEST(ResolvedConfig, Fp16WithoutAFileScalesAsPyTorchDoes) {
  auto const c = resolved("", {"--fp16"});
  EXPECT_TRUE(c.dynamic_loss_scale);
  EXPECT_EQ(c.initial_scale_power, 16);
  EXPECT_EQ(c.loss_scale_window, 2000);
  EXPECT_EQ(c.hysteresis, 1);
  EXPECT_EQ(c.loss_scale_growth, optim::ScaleGrowth::torch);
  auto const with = resolved(R"({"fp16": {"enabled": true}})");
  EXPECT_EQ(with.loss_scale_window, 1000);
  EXPECT_EQ(with.loss_scale_growth, optim::ScaleGrowth::deepspeed);
}

TEST(ResolvedConfig, WithoutAFileTheFlagsAreAll) {
  auto const c =
      resolved("", {"--bf16", "--gradient_accumulation_steps", "3", "--max_grad_norm", "0"}, 4);
  EXPECT_EQ(c.stage, 0);
  EXPECT_EQ(c.train_batch_size, 96);
  EXPECT_EQ(c.dtype, Dtype::fp32);
  EXPECT_EQ(c.product_dtype, Dtype::bf16) << "autocast";
  EXPECT_EQ(c.communication_dtype, Dtype::fp32);
  EXPECT_EQ(c.optimizer.groups, optim::decay_groups());
  EXPECT_TRUE(c.overlap_comm && c.skip_on_nonfinite);
  EXPECT_EQ(c.max_grad_norm, 0.0);
  EXPECT_TRUE(scheduler_section(c, 10).is_null());
  EXPECT_EQ(resolved("", {"--dtype", "bfloat16"}).dtype, Dtype::bf16);
  EXPECT_EQ(resolved("", {"--dtype", "float32", "--fp16"}).product_dtype, Dtype::fp16);
  EXPECT_THROW(resolved("", {"--fp16_full_eval"}), UsageError);
  EXPECT_NO_THROW(resolved("", {"--fp16", "--fp16_full_eval"}));
}

Words flag_words(ConfigTree const& flags) {
  Words words;
  for (auto const& [name, value] : flags.as_object())
    words.push_back("--" + name + "=" + value.dump());
  return words;
}

double number(ConfigTree const& filled, std::string const& path) {
  auto const dot = path.find('.');
  return dot == std::string::npos ? filled.at(path).as_double()
                                  : number(filled.at(path.substr(0, dot)), path.substr(dot + 1));
}

/// transformers fills "auto" and refuses contradictions; stored by
/// tests/oracles/hf_deepspeed_auto.py.
TEST(ResolvedConfig, AgreesWithTransformersOnAutoAndContradictions) {
  auto const stored =
      ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/hf_deepspeed_auto.json");
  std::size_t refused = 0;
  for (auto const& entry : stored.at("auto").as_array()) {
    std::string const json = entry.at("config").dump();
    auto const& filled = entry.at("filled");
    int const ranks = static_cast<int>(entry.at("ranks").as_int());
    if (filled.is_null()) {
      EXPECT_NE(error_of(json, flag_words(entry.at("flags")), ranks), "") << json;
      ++refused;
      continue;
    }
    auto const c =
        resolved(json, flag_words(entry.at("flags")), ranks, entry.at("hidden_size").as_int());
    auto const section = scheduler_section(c, entry.at("total_steps").as_int());
    auto const expect = [&](char const* path, double value) {
      if (filled.contains(std::string(path).substr(0, std::string(path).find('.')))) {
        EXPECT_EQ(number(filled, path), value) << path << " of " << json;
      }
    };
    expect("train_batch_size", static_cast<double>(c.train_batch_size));
    expect("train_micro_batch_size_per_gpu", static_cast<double>(c.micro_batch_size));
    expect("gradient_accumulation_steps", static_cast<double>(c.accumulation_steps));
    expect("gradient_clipping", c.max_grad_norm);
    expect("optimizer.params.lr", c.learning_rate);
    expect("optimizer.params.eps", c.optimizer.value("eps"));
    expect("optimizer.params.weight_decay", c.optimizer.value("weight_decay"));
    if (filled.contains("optimizer")) {
      EXPECT_EQ(
          filled.at("optimizer").at("params").at("betas"),
          ConfigTree(ConfigTree::Array{c.optimizer.value("beta1"), c.optimizer.value("beta2")}));
    }
    if (filled.contains("fp16")) {
      EXPECT_EQ(filled.at("fp16").at("enabled").as_bool(), c.dtype == Dtype::fp16);
    }
    if (filled.contains("bf16")) {
      EXPECT_EQ(filled.at("bf16").at("enabled").as_bool(), c.dtype == Dtype::bf16);
    }
    for (char const* name :
         {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "total_num_steps"})
      if (filled.contains("scheduler"))
        expect((std::string("scheduler.params.") + name).c_str(),
               section.at("params").at(name).as_double());
    if (c.stage < 2) continue;
    expect("zero_optimization.reduce_bucket_size", static_cast<double>(c.reduce_bucket_size));
    if (c.stage != 3) continue;
    expect("zero_optimization.stage3_prefetch_bucket_size",
           static_cast<double>(c.prefetch_bucket_size));
    expect("zero_optimization.stage3_param_persistence_threshold",
           static_cast<double>(c.param_persistence_threshold));
  }
  EXPECT_GE(refused, 4u);
}

TEST(ResolvedConfig, OldAndEmptyForms) {
  EXPECT_EQ(resolved(R"({"zero_optimization": true})").stage, 1);
  EXPECT_EQ(resolved(R"({"zero_optimization": {"stage": 2.0}, "bf16": null})").stage, 2);
  EXPECT_FALSE(resolved(R"({"zero_optimization": {"stage": 2}})").overlap_comm);
  EXPECT_TRUE(resolved(R"({"zero_optimization": {"stage": 3}})").overlap_comm);
  EXPECT_EQ(
      resolved(R"({"zero_optimization": {"stage": 2, "stage3_prefetch_bucket_size": "auto"}})")
          .prefetch_bucket_size,
      50'000'000);
  EXPECT_NO_THROW(resolved(
      R"({"zero_optimization": {"offload_param": {"device": "none"}}, "wandb": {"enabled": false}})"));
  EXPECT_THROW(resolved(R"({"zero_optimization": {"reduce_bucket_size": "auto"}})", {}, 1, 0),
               ConfigError);
}

TEST(ResolvedConfig, OriginsTellWhereEachValueCameFrom) {
  auto const c = resolved(gpt2_xl, {"--learning_rate", "1e-4"}, 2);
  auto const d = describe(c);
  EXPECT_EQ(d.at("learning_rate").dump(), R"({"value":0.0001,"origin":"flag"})");
  EXPECT_EQ(d.at("stage").dump(), R"({"value":3,"origin":"deepspeed"})");
  EXPECT_EQ(d.at("reduce_bucket_size").dump(), R"({"value":4096,"origin":"derived"})");
  EXPECT_EQ(d.at("beta1").at("origin").as_string(), "default");
  EXPECT_EQ(d.at("train_batch_size").at("origin").as_string(), "derived");
  EXPECT_EQ(d.at("scheduler").at("value").at("params").at("warmup_num_steps").as_string(), "auto");
}

}  // namespace
}  // namespace tessera::config
