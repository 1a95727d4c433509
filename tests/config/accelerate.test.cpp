#include "detail/accelerate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error_of.hpp"
#include "scratch_files.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config::detail {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

/// Text that `accelerate config` writes.
char const* const deepspeed_yaml = R"(compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config:
  gradient_accumulation_steps: 4
  gradient_clipping: 0.5
  offload_optimizer_device: none
  offload_param_device: none
  zero3_init_flag: true
  zero3_save_16bit_model: true
  zero_stage: 3
distributed_type: DEEPSPEED
downcast_bf16: 'no'
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
use_cpu: false
)";

ResolvedConfig resolved(std::string const& yaml, std::vector<std::string> words = {}) {
  ScratchFiles const files;
  words.insert(words.begin(), {"--accelerate_config", files.write("default_config.yaml", yaml)});
  return resolve(parse_options(words), 2, 64);
}
std::string config_error(std::string const& yaml) {
  return error_of<ConfigError>([&] { resolved(yaml); });
}

TEST(Accelerate, DeepSpeedKeysAreThoseOfTheJson) {
  auto const c = resolved(deepspeed_yaml);
  EXPECT_EQ(c.stage, 3);
  EXPECT_EQ(c.accumulation_steps, 4);
  EXPECT_EQ(c.max_grad_norm, 0.5);
  EXPECT_EQ(c.dtype, Dtype::bf16);
  EXPECT_TRUE(c.gather_16bit_weights);
}

TEST(Accelerate, FlagsWin) {
  EXPECT_EQ(resolved("mixed_precision: fp16\n").product_dtype, Dtype::fp16);
  EXPECT_EQ(resolved("mixed_precision: fp16\n", {"--fp16", "false"}).dtype, Dtype::fp32);
  EXPECT_EQ(resolved("mixed_precision: no\n").dtype, Dtype::fp32);
  EXPECT_THAT(error_of<UsageError>([] {
                resolved(deepspeed_yaml, {"--deepspeed", "{\"zero_optimization\": {}}"});
              }),
              HasSubstr("are both given"));
}

TEST(Accelerate, OffloadingIsDeepSpeeds) {
  auto const c = resolved(
      "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n"
      "  offload_optimizer_device: nvme\n  offload_optimizer_nvme_path: /local\n"
      "  offload_param_device: cpu\n");
  EXPECT_EQ(c.offload.optimizer, OffloadDevice::nvme);
  EXPECT_EQ(c.offload.nvme_path, "/local");
  EXPECT_EQ(c.offload.parameters, OffloadDevice::cpu);
}

TEST(Accelerate, FsdpIsAStage) {
  auto const c = resolved(
      "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
      "  fsdp_offload_params: false\n  fsdp_backward_prefetch_policy: BACKWARD_PRE\n"
      "  fsdp_transformer_layer_cls_to_wrap: GPT2Block\n");
  EXPECT_EQ(c.stage, 2);
  EXPECT_THAT(c.notes, Contains(HasSubstr("shard_grad_op is ZeRO stage 2")));
}

/// Accelerate 1.15, commands/config/config_args.py: BaseConfig and ClusterConfig; the last three
/// are of older versions.
TEST(Accelerate, EveryKeyOfItsClustersIsKnown) {
  for (char const* key : {"compute_environment",
                          "distributed_type",
                          "mixed_precision",
                          "use_cpu",
                          "debug",
                          "num_processes",
                          "machine_rank",
                          "num_machines",
                          "gpu_ids",
                          "main_process_ip",
                          "main_process_port",
                          "rdzv_backend",
                          "same_network",
                          "main_training_function",
                          "enable_cpu_affinity",
                          "fp8_config",
                          "deepspeed_config",
                          "fsdp_config",
                          "parallelism_config",
                          "megatron_lm_config",
                          "mpirun_config",
                          "downcast_bf16",
                          "tpu_name",
                          "tpu_zone",
                          "tpu_use_cluster",
                          "tpu_use_sudo",
                          "command_file",
                          "commands",
                          "tpu_vm",
                          "tpu_env",
                          "dynamo_config",
                          "ipex_config",
                          "tp_config",
                          "deepspeed_hostfile"})
    EXPECT_EQ(config_error(concat(key, ": null\n")), "") << key;
  // commands/launch.py: the options that fsdp_config gives
  for (char const* key :
       {"activation_checkpointing", "activation_checkpointing_offload", "auto_wrap_policy",
        "backward_prefetch", "cpu_ram_efficient_loading", "forward_prefetch", "min_num_params",
        "offload_params", "reshard_after_forward", "sharding_strategy", "state_dict_type",
        "sync_module_states", "transformer_layer_cls_to_wrap", "use_orig_params", "version"})
    EXPECT_NE(fsdp_table().find(key), nullptr) << key;
}

TEST(Accelerate, OldFilesAreTranslated) {
  EXPECT_EQ(resolved("distributed_type: NO\nfp16: true\ndynamo_backend: 'NO'\n").product_dtype,
            Dtype::fp16);
  EXPECT_EQ(resolved("fp16: false\ndynamo_backend: NO\n").product_dtype, Dtype::fp32);
  EXPECT_EQ(resolved("fp16: true\nmixed_precision: bf16\n").product_dtype, Dtype::bf16)
      << "the new key wins, as in process_config()";
  ScratchFiles const files;
  auto const compiled =
      parse_options({"--accelerate_config", files.write("a.yaml", "dynamo_backend: INDUCTOR\n")});
  EXPECT_THAT(compiled.hints, Contains(HasSubstr("dynamo_config")));
  EXPECT_EQ(config_error("command_file: null\ncommands: null\ntpu_name: null\ntpu_zone: null\n"
                         "tpu_vm: [a, b]\nmpirun_config:\n  mpirun_ccl: '1'\n"),
            "");
}

TEST(Accelerate, BlocksThatAreOffPass) {
  EXPECT_EQ(config_error("ipex_config:\n  ipex: false\n  use_xpu: false\n"), "");
  EXPECT_EQ(config_error("parallelism_config:\n  parallelism_config_tp_size: 1\n"
                         "  parallelism_config_cp_comm_strategy: allgather\n"),
            "");
  EXPECT_EQ(config_error("fp8_config: {}\nmegatron_lm_config:\n  megatron_lm_tp_degree: 2\n"), "");
  EXPECT_THAT(config_error("ipex_config:\n  ipex: true\n"), HasSubstr("remove the block"));
  EXPECT_THAT(config_error("parallelism_config:\n  parallelism_config_tp_size: 2\n"),
              HasSubstr("remove the block"));
}

TEST(Accelerate, AllUnknownKeysAreInOneMessage) {
  EXPECT_THAT(config_error("num_procesess: 2\nspeed: fast\n"),
              HasSubstr("2 unknown keys: num_procesess (did you mean num_processes?), speed "));
}

TEST(Accelerate, WhatIsRefusedSaysWhy) {
  EXPECT_THAT(config_error("mixed_precision: fp8\n"), HasSubstr("use bf16, and give --fp8 true"));
  EXPECT_THAT(config_error("distributed_type: MEGATRON_LM\n"), HasSubstr("DEEPSPEED or FSDP"));
  EXPECT_THAT(config_error("num_procesess: 2\n"), HasSubstr("did you mean num_processes?"));
  EXPECT_THAT(config_error("distributed_type: DEEPSPEED\ndeepspeed_config:\n"
                           "  offload_optimizer_device: nvme\n"),
              HasSubstr("nvme_path is missing"));
}

}  // namespace
}  // namespace tessera::config::detail
