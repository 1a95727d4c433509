#include "tessera/config/option_table.hpp"

#include <algorithm>
#include <string>

#include "detail/deepspeed_zero.hpp"
#include "tessera/core/error.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::config {
namespace {

using enum OptionType;
using detail::same_result;

void add_batch(OptionTable& t) {
  t.group("Batch");
  t.add(integer, "train_batch_size", {}, "samples of all ranks per optimizer step")
      .at_least(1, "samples")
      .auto_is("from the flags");
  t.add(integer, "train_micro_batch_size_per_gpu", {}, "samples per rank and micro-step")
      .at_least(1, "samples")
      .auto_is("per_device_train_batch_size");
  t.add(integer, "gradient_accumulation_steps", {}, "micro-steps per optimizer step")
      .at_least(1, "micro-steps")
      .auto_is("gradient_accumulation_steps");
  t.add(boolean, "managed_gradient_accumulation", true, "the engine counts the micro-steps")
      .refuse("Tessera counts them itself; leave it out");
  t.add(boolean, "dataloader_drop_last", false,
        "drop the last incomplete batch of an epoch, as --dataloader_drop_last");
}

std::vector<std::string> optimizer_types() {
  std::vector<std::string> names;
  for (auto const& info : optim::optimizers())
    if (!info.not_in_deepspeed) names.emplace_back(info.algorithm);
  return names;
}

/// "SGD, RMSprop": the optimizers that have the hyperparameter.
std::string owners_of(std::string const& hyperparameter) {
  std::string out;
  for (auto const& info : optim::optimizers())
    for (auto const& rule : info.hyperparameters)
      if (rule.name == hyperparameter && !info.not_in_deepspeed)
        out += concat(out.empty() ? "" : ", ", info.algorithm);
  return out;
}

/// None where optimizers have different defaults.
ConfigTree default_of(optim::HyperparameterRule const& rule) {
  for (auto const& info : optim::optimizers())
    for (auto const& other : info.hyperparameters)
      if (std::string(other.name) == rule.name && other.value != rule.value &&
          !info.not_in_deepspeed)
        return {};
  bool const is_flag = rule.range == optim::HyperparameterRule::Range::flag;
  return is_flag ? ConfigTree(rule.value != 0.0) : ConfigTree(rule.value);
}

/// Hyperparameters of every optimizer; those that the table has already take flags as defaults.
void add_hyperparameters(OptionTable& t) {
  for (auto const& info : optim::optimizers()) {
    if (info.not_in_deepspeed) continue;
    for (auto const& rule : info.hyperparameters) {
      std::string const key = concat("optimizer.params.", rule.name);
      bool const is_flag = rule.range == optim::HyperparameterRule::Range::flag;
      if (t.find(key) || rule.is_derived || std::string(rule.name).starts_with("beta")) continue;
      t.add(is_flag ? boolean : real, key, default_of(rule),
            concat(owners_of(rule.name), ": ", rule.meaning));
    }
  }
}

void add_muon(OptionTable& t) {
  for (char const* name : {"muon_lr", "adam_lr"})
    t.add(real, std::string("optimizer.params.") + name, {},
          std::string(name) == "muon_lr" ? "Muon: learning rate of matrices; none: lr"
                                         : "Muon: learning rate of other parameters; none: lr")
        .at_least(0);
  t.add(choice, "optimizer.params.ns_method", "gram", "Muon: form of the Newton-Schulz iteration")
      .one_of({"gram", "standard"})
      .hint("no effect: both forms are the same iteration, which runs in fp32");
  t.add(boolean, "optimizer.params.per_head_muon", false, "Muon: each attention head by itself")
      .refuse("it is not implemented; leave it out");
}

/// Known so that the message names the optimizer also where they precede its type.
void add_zero_one_adam(OptionTable& t) {
  for (char const* name :
       {"var_freeze_step", "var_update_scaler", "local_step_scaler", "local_step_clipper"})
    t.add(real, concat("optimizer.params.", name), {}, "ZeroOneAdam")
        .refuse("ZeroOneAdam is not implemented; use OneBitAdam or AdamW");
}

struct OptimizerClasses {
  char const* type;
  std::vector<char const*> classes;
};
std::vector<OptimizerClasses> const classes_of_deepspeed{
    {"Adam or AdamW", {"FusedAdam", "CPUAdam", "DeepSpeedCPUAdam", "ZenFlowCPUAdam"}},
    {"Lamb", {"FusedLamb"}},
    {"Lion", {"FusedLion", "CPULion", "DeepSpeedCPULion"}},
    {"Adagrad", {"CPUAdagrad", "DeepSpeedCPUAdagrad"}},
    {"Muon", {"MuonWithAuxAdam"}}};

void add_optimizer(OptionTable& t) {
  t.group("Optimizer");
  auto& type =
      t.add(choice, "optimizer.type", {}, "optimizer; case-insensitive").one_of(optimizer_types());
  for (auto const& info : optim::optimizers())
    if (info.not_in_deepspeed) type.except(info.algorithm, info.not_in_deepspeed);
  for (char const* name :
       {"MuAdam", "MuAdamW", "MuSGD", "Adadelta", "ASGD", "LBFGS", "Rprop", "SparseAdam"})
    type.except(name, "it is not implemented; use AdamW");
  type.except("ZeroOneAdam", "it is not implemented; use OneBitAdam or AdamW");
  // names of classes: DeepSpeed's engine chooses the class, and looks for others in torch.optim
  for (auto const& [name, classes] : classes_of_deepspeed)
    for (char const* of_class : classes)
      type.except(of_class, concat("DeepSpeed has no such type, only a class of this name; write ",
                                   name, ", with or without offloading"));
  t.add(real, "optimizer.params.lr", {},
        "learning rate; none: --learning_rate if given, else DeepSpeed's default of the optimizer")
      .at_least(0)
      .auto_is("learning_rate");
  t.add(numbers, "optimizer.params.betas", {},
        "decay rates of the moments; none: --adam_beta1, --adam_beta2")
      .shown_as("two numbers from 0 to below 1")
      .auto_is("adam_beta1, adam_beta2");
  t.add(real, "optimizer.params.eps", {}, "epsilon; none: --adam_epsilon")
      .at_least(0)
      .auto_is("adam_epsilon");
  t.add(real, "optimizer.params.weight_decay", {},
        "weight decay of every parameter; none: --weight_decay")
      .at_least(0)
      .auto_is("weight_decay");
  add_hyperparameters(t);
  t.add(boolean, "optimizer.params.adam_w_mode", true,
        "Adam: false adds weight decay to the gradient (L2); AdamW ignores it");
  t.add(boolean, "optimizer.params.torch_adam", false, "use PyTorch's kernel")
      .hint("no effect: Tessera has one kernel");
  t.add(boolean, "optimizer.params.fp32_optimizer_states", true,
        "false: keep optimizer states in the dtype of the master weights");
  add_zero_one_adam(t);
  add_muon(t);
  char const* const transport = "no effect: Tessera's own collectives are used";
  t.add(boolean, "optimizer.params.cuda_aware", {}, "1-bit optimizers: transport").hint(transport);
  t.add(string, "optimizer.params.comm_backend_name", {}, "1-bit optimizers: transport")
      .hint(transport);
  t.add(boolean, "optimizer.params.amsgrad", false, "AMSGrad").refuse("leave it out");
  t.add(real, "optimizer.params.max_grad_norm", {}, "gradient clipping")
      .refuse("use gradient_clipping");
  t.add(boolean, "optimizer.legacy_fusion", false, "old fused kernels")
      .hint("no effect: Tessera has one kernel");
  t.add(real, "gradient_clipping", {},
        "clip the global gradient norm to this value; 0: no clipping; none: --max_grad_norm (1)")
      .at_least(0)
      .auto_is("max_grad_norm");
  t.add(boolean, "zero_allow_untested_optimizer", false, "allow any optimizer with ZeRO")
      .hint("no effect: every optimizer works with ZeRO");
  t.add(boolean, "zero_force_ds_cpu_optimizer", true,
        "use DeepSpeed's CPU optimizer with offloading")
      .hint("no effect: Tessera has one kernel");
}

void add_scheduler(OptionTable& t) {
  t.group("Scheduler");
  t.add(choice, "scheduler.type", {}, "learning-rate schedule instead of --lr_scheduler_type")
      .one_of({"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest"});
  std::string const p = "scheduler.params.";
  t.add(real, p + "warmup_min_lr", 0.0, "Warmup*: rate of the first step").at_least(0).auto_is("0");
  t.add(real, p + "warmup_max_lr", {}, "Warmup*: rate after the warm-up; none: the optimizer's")
      .at_least(0)
      .auto_is("learning_rate");
  t.add(integer, p + "warmup_num_steps", 1000, "Warmup*: steps of warm-up")
      .at_least(0, "steps")
      .auto_is("warmup_steps, at least 1");
  t.add(choice, p + "warmup_type", "log", "Warmup*: shape of the warm-up")
      .one_of({"log", "linear"});
  t.add(integer, p + "total_num_steps", {}, "WarmupDecayLR, WarmupCosineLR: steps of the schedule")
      .at_least(1, "steps")
      .auto_is("the run's optimizer steps");
  t.add(real, p + "warmup_min_ratio", 0.0,
        "WarmupCosineLR: first rate as a fraction of the learning rate")
      .at_least(0);
  t.add(real, p + "cos_min_ratio", 1e-4,
        "WarmupCosineLR: last rate as a fraction of the learning rate")
      .at_least(0);
  t.add(real, p + "cycle_min_lr", {}, "OneCycle: lowest rate").at_least(0);
  t.add(real, p + "cycle_max_lr", {}, "OneCycle: highest rate").at_least(0);
  t.add(real, p + "decay_lr_rate", 0.0, "OneCycle: decay after the cycle").at_least(0);
  t.add(integer, p + "cycle_first_step_size", 2000, "OneCycle: steps up").at_least(1, "steps");
  t.add(integer, p + "cycle_second_step_size", {}, "OneCycle: steps down; none: as many as up")
      .at_least(0, "steps");
  t.add(integer, p + "cycle_first_stair_count", 0, "OneCycle: stairs up; 0: smooth").at_least(0);
  t.add(integer, p + "cycle_second_stair_count", {}, "OneCycle: stairs down; none: as many as up")
      .at_least(0);
  t.add(integer, p + "decay_step_size", 0, "OneCycle: steps between decays").at_least(0, "steps");
  t.add(boolean, p + "cycle_momentum", true,
        "OneCycle: beta1 falls while the rate rises, and beta2 is 0.99");
  t.add(real, p + "cycle_min_mom", 0.8, "OneCycle: lowest beta1");
  t.add(real, p + "cycle_max_mom", 0.9, "OneCycle: highest beta1");
  t.add(real, p + "decay_mom_rate", 0.0, "OneCycle: growth of beta1 after the cycle");
  t.add(integer, p + "last_batch_iteration", -1, "start of the schedule")
      .refuse("a resumed run takes its position from the checkpoint; remove it");
  t.add(real, p + "lr_range_test_min_lr", 1e-3, "LRRangeTest: first rate").above(0);
  t.add(integer, p + "lr_range_test_step_size", 2000, "LRRangeTest: steps per stair")
      .at_least(1, "steps");
  t.add(real, p + "lr_range_test_step_rate", 1.0, "LRRangeTest: growth per stair").at_least(0);
  t.add(boolean, p + "lr_range_test_staircase", false,
        "LRRangeTest: stairs instead of linear growth");
}

void add_precision(OptionTable& t) {
  t.group("Precision");
  t.add(boolean, "fp16.enabled", false, "float16 weights and activations with loss scaling")
      .auto_is("--fp16");
  t.add(real, "fp16.loss_scale", 0.0, "constant loss scale; 0: dynamic").at_least(0);
  t.add(integer, "fp16.initial_scale_power", 16, "dynamic: the initial scale is 2 to this power")
      .between(0, 126);
  t.add(integer, "fp16.loss_scale_window", 1000,
        "dynamic: double the scale after N steps without overflow")
      .at_least(1, "steps");
  t.add(integer, "fp16.hysteresis", 2, "dynamic: overflows before the scale is halved").at_least(1);
  t.add(boolean, "fp16.consecutive_hysteresis", false,
        "dynamic: reset the overflow count after each step without overflow");
  t.add(real, "fp16.min_loss_scale", 1.0, "dynamic: an overflow at this scale ends the run")
      .above(0);
  t.add(boolean, "fp16.auto_cast", false, "cast inputs to float16")
      .hint("no effect: inputs are token ids");
  t.add(boolean, "fp16.fp16_master_weights_and_grads", false,
        "update the float16 weights, with float16 gradients, without fp32 master weights; stages 1 "
        "to 3");
  t.add(boolean, "bf16.enabled", false, "bfloat16 weights and activations").auto_is("--bf16");
  t.add(boolean, "bf16.check_grad_overflow", true, "skip steps with gradients that are not finite");
  t.add(boolean, "bf16.immediate_grad_update", false, "accumulate gradients immediately")
      .hint(same_result);
  t.add(boolean, "bf16.bf16_master_weights_and_grads", false,
        "update the bfloat16 weights, with bfloat16 gradients, without fp32 master weights; stages "
        "1 to 3");
  t.add(boolean, "bf16.bf16_optimizer_states", false,
        "keep optimizer states in bfloat16; needs bf16_master_weights_and_grads");
}

void add_data_types(OptionTable& t) {
  t.add(choice, "communication_data_type", {},
        "dtype of gradients in reductions; none: the working precision (fp32 without a DeepSpeed "
        "configuration)")
      .one_of({"fp32", "fp16", "bf16"})
      .spelled({"FP32"}, "fp32")
      .spelled({"FP16"}, "fp16")
      .spelled({"BF16"}, "bf16");
  t.add(choice, "data_types.grad_accum_dtype", {},
        "dtype of accumulated gradients; none: fp32 (DeepSpeed: the working precision)")
      .one_of({"fp32", "fp16", "bf16"})
      .spelled({"float32", "float", "torch.float32"}, "fp32")
      .spelled({"float16", "half", "torch.float16"}, "fp16")
      .spelled({"bfloat16", "torch.bfloat16"}, "bf16");
  t.add(string, "data_types.param_dtype", {}, "dtype of parameters")
      .hint("no effect: the fp16 and bf16 blocks decide");
  t.add(string, "data_types.buffer_dtype", {}, "dtype of buffers")
      .hint("no effect: the models have none");
  t.add(list, "data_types.keep_in_fp32_modules", {}, "modules kept in fp32")
      .refuse("leave it out; master weights are fp32");
  t.add(boolean, "amp.enabled", false, "stage 0: apex mixed precision in float16").auto_is("false");
  t.add(choice, "amp.opt_level", "O1",
        "O0: fp32; O1: as torch_autocast; O2: as the fp16 block, with its defaults")
      .one_of({"O0", "O1", "O2"})
      .auto_is("O1")
      .except("O3", "it has no fp32 master weights; use O2");
  t.add(boolean, "torch_autocast.enabled", false,
        "fp32 weights and residual stream, 16-bit matrix products")
      .auto_is("false");
  t.add(choice, "torch_autocast.dtype", "bfloat16", "dtype of the products")
      .one_of({"bfloat16", "float16", "bf16", "fp16"})
      .spelled({"torch.bfloat16"}, "bfloat16")
      .spelled({"half", "torch.float16"}, "float16");
  t.add(list, "torch_autocast.lower_precision_safe_modules", {},
        "modules whose gradients are reduced in 16 bits")
      .hint("no effect: communication_data_type is the dtype of all reductions");
  t.add(string, "seq_parallel_communication_data_type", "fp32",
        "dtype of communication in sequence parallelism")
      .hint("no effect: sequence parallelism is not supported");
}

void add_gradients(OptionTable& t) {
  t.group("Gradients");
  t.add(boolean, "prescale_gradients", false,
        "stages 0 and 1: divide gradients by the number of ranks before the reduction");
  t.add(real, "gradient_predivide_factor", 1.0,
        "stages 0 and 1: divide gradients by this before the reduction, and by the rest after it")
      .above(0);
  t.add(choice, "gradient_allreduce_op", "mean",
        "mean: of all ranks; sum (stages 0 to 2): multiplied by the number of ranks")
      .one_of({"mean", "sum"});
  t.add(boolean, "sparse_gradients", false, "sparse embedding gradients")
      .refuse("embedding gradients are dense; remove it");
  t.add(boolean, "disable_allgather", false, "no effect in DeepSpeed either").hint("no effect");
}

OptionTable build_deepspeed() {
  OptionTable t;
  add_batch(t);
  add_optimizer(t);
  add_scheduler(t);
  add_precision(t);
  add_data_types(t);
  add_gradients(t);
  detail::add_zero_optimization(t);
  detail::add_deepspeed_blocks(t);
  for (char const* typed :
       {"zero_optimization.", "fp16.", "bf16.", "comms_logger.", "tensorboard.", "csv_monitor.",
        "wandb.", "comet.", "hybrid_engine.", "compile.", "timers.", "weight_quantization."})
    t.convert_values(typed);
  return t;
}

}  // namespace

OptionTable const& deepspeed_table() {
  static OptionTable const table = build_deepspeed();
  return table;
}

}  // namespace tessera::config
