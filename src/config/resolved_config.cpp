#include "tessera/config/resolved_config.hpp"

#include <algorithm>
#include <cmath>

#include "detail/accelerate.hpp"
#include "detail/deepspeed_zero.hpp"
#include "detail/optimizer_keys.hpp"
#include "detail/resolvers.hpp"
#include "tessera/config/node_groups.hpp"
#include "tessera/config/option_table.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config {
namespace {

/// Resolves flags and DeepSpeed keys, field by field.
class Resolver {
 public:
  Resolver(TrainingArguments const& arguments, int world_size, std::int64_t hidden_size)
      : args_(arguments), hidden_size_(hidden_size), json_(arguments.deepspeed.keys) {
    out_.world_size = world_size;
    out_.has_deepspeed = arguments.deepspeed.is_given();
    out_.notes = arguments.deepspeed.notes;
  }

  ResolvedConfig run() {
    resolve_batch();
    resolve_zero();
    detail::resolve_precision({.args = args_,
                               .fp16 = enabled("fp16", args_.fp16).value_or(false),
                               .bf16 = enabled("bf16", args_.bf16).value_or(false)},
                              out_);
    resolve_optimizer();
    resolve_schedule();
    resolve_data();
    out_.reporting = reporting_of(args_);
    out_.tuning = tuning_of(args_);
    return std::move(out_);
  }

 private:
  std::string const& source() const { return args_.deepspeed.source; }
  ConfigTree const& value(std::string const& key) const { return args_.deepspeed.value(key); }
  /// The JSON has the key with a value other than "auto".
  bool written(std::string const& key) const { return args_.deepspeed.find(key) != nullptr; }

  [[noreturn]] void contradiction(std::string const& key, ConfigTree const& json,
                                  std::string const& flag, ConfigTree const& given) const {
    throw ConfigError(concat(source(), ": ", key, " is ", json.dump(), " but --", flag, " is ",
                             given.dump(), " (", name_of(args_.values.origin(flag)),
                             "); remove one of them or set the key to \"auto\""));
  }

  /// A key that repeats a flag: the number in the JSON, unless it contradicts a flag that was
  /// given, else the flag.
  template <class Number>
  Number match(std::string const& field, std::string const& key, std::string const& flag,
               Number flag_value) {
    if (!written(key)) {
      out_.origins[field] = args_.values.origin(flag);
      return flag_value;
    }
    Number const json = static_cast<Number>(value(key).as_double());
    if (args_.given(flag) && json != flag_value) contradiction(key, value(key), flag, flag_value);
    out_.origins[field] = Origin::deepspeed;
    return json;
  }

  void take(char const* field, std::string const& key, auto& value) {
    detail::take(args_.deepspeed, key, out_, field, value);
  }

  void resolve_batch();
  void resolve_zero();
  void resolve_offload();
  void resolve_offload_blocks();
  void resolve_optimizer();
  bool lacks_rate() const {
    return json_.given("optimizer.type") && !json_.given("optimizer.params.lr");
  }
  double peak_learning_rate(std::string const& algorithm);
  std::string resolve_algorithm();
  void resolve_optim_args(std::string const& algorithm);
  double hyperparameter(std::string const& algorithm, optim::HyperparameterRule const& rule);
  double beta(std::size_t index, optim::HyperparameterRule const& rule, double flag_value);
  std::optional<double> optim_arg(std::string const& name, std::string const& field);
  double from_flag(optim::HyperparameterRule const& rule, std::string const& key,
                   std::string const& flag, double flag_value);
  void resolve_schedule();
  void check_schedule() const;
  void note_cycled_betas();
  void resolve_data();
  std::optional<bool> enabled(char const* name, bool flag_value) const;
  std::int64_t elements(char const* field, std::string const& key, std::int64_t automatic,
                        bool applies);

  TrainingArguments const& args_;
  std::int64_t hidden_size_;
  OptionValues const& json_;  ///< the DeepSpeed keys; empty without a configuration
  std::vector<optim::Hyperparameter> optim_args_;  ///< options of --optim_args
  ResolvedConfig out_;
};

/// The batch triangle: total = micro * accumulation * data-parallel ranks. A value that neither the
/// JSON nor a given flag sets is derived from the others.
void Resolver::resolve_batch() {
  auto const known = [this](char const* field, char const* key, char const* flag,
                            std::int64_t flag_value) -> std::int64_t {
    return written(key) || args_.given(flag) ? match(field, key, flag, flag_value) : 0;
  };
  std::int64_t const ranks = mesh_of(out_).data_size();
  std::int64_t micro = known("micro_batch_size", "train_micro_batch_size_per_gpu",
                             "per_device_train_batch_size", args_.per_device_train_batch_size);
  std::int64_t steps = known("accumulation_steps", "gradient_accumulation_steps",
                             "gradient_accumulation_steps", args_.gradient_accumulation_steps);
  std::int64_t total = written("train_batch_size") ? value("train_batch_size").as_int() : 0;
  bool const micro_known = micro > 0, steps_known = steps > 0;
  if (total == 0) {
    if (!micro_known) micro = args_.per_device_train_batch_size;
    if (!steps_known) steps = args_.gradient_accumulation_steps;
    total = micro * steps * ranks;
    out_.origins["train_batch_size"] = Origin::derived;
  } else {
    out_.origins["train_batch_size"] = Origin::deepspeed;
    if (!steps_known) steps = micro_known ? total / micro / ranks : 1;
    if (!micro_known) micro = total / ranks / steps;
    if (!micro_known) out_.origins["micro_batch_size"] = Origin::derived;
    if (!steps_known) out_.origins["accumulation_steps"] = Origin::derived;
  }
  auto const named = [this](char const* key, char const* flag, std::int64_t size) {
    return detail::BatchFactor{written(key) ? key : concat("--", flag), size};
  };
  TESSERA_VALIDATE(
      micro > 0 && steps > 0 && total == micro * steps * ranks, ConfigError, source(), ": ",
      detail::batch_problem(
          total,
          {micro_known
               ? named("train_micro_batch_size_per_gpu", "per_device_train_batch_size", micro)
               : detail::BatchFactor{"train_micro_batch_size_per_gpu", 0},
           steps_known ? named("gradient_accumulation_steps", "gradient_accumulation_steps", steps)
                       : detail::BatchFactor{"gradient_accumulation_steps", 0},
           {"ranks", ranks}}));
  out_.train_batch_size = total;
  out_.micro_batch_size = micro;
  out_.accumulation_steps = steps;
}

/// The block's value ("auto": the flag), or none if the block is absent; a given flag must agree.
std::optional<bool> Resolver::enabled(char const* name, bool flag_value) const {
  std::string const key = std::string(name) + ".enabled";
  if (!written(key)) return flag_value ? std::optional(true) : std::nullopt;
  bool const json = value(key).as_bool();
  if (args_.given(name) && json != flag_value) contradiction(key, json, name, flag_value);
  return json;
}

/// A size in elements: the number, else @p automatic for "auto" where it applies, else the default.
std::int64_t Resolver::elements(char const* field, std::string const& key, std::int64_t automatic,
                                bool applies) {
  std::string const path = "zero_optimization." + key;
  if (written(path)) {
    out_.origins[field] = Origin::deepspeed;
    return value(path).as_int();
  }
  if (!applies || !json_.given(path)) return deepspeed_table().find(path)->default_value.as_int();
  TESSERA_VALIDATE(
      hidden_size_ > 0, ConfigError, source(), ": ", path,
      " is \"auto\", which follows the model's hidden size, and that is not known here; "
      "write a number of elements");
  out_.origins[field] = Origin::derived;
  return automatic;
}

void Resolver::resolve_zero() {
  take("stage", "zero_optimization.stage", out_.stage);
  if (auto const fsdp = detail::resolve_fsdp(args_)) {
    TESSERA_VALIDATE(!out_.has_deepspeed, UsageError,
                     "--fsdp and --deepspeed both choose how the model is sharded; leave one out");
    out_.stage = fsdp->stage;
    out_.shards_within_nodes = fsdp->within_nodes;
    if (fsdp->offloads) {
      out_.offload.parameters = out_.offload.optimizer = OffloadDevice::cpu;
    }
    out_.origins["stage"] = args_.values.origin("fsdp");
    out_.notes.insert(out_.notes.end(), fsdp->notes.begin(), fsdp->notes.end());
  }
  take("gather_16bit_weights", "zero_optimization.stage3_gather_16bit_weights_on_model_save",
       out_.gather_16bit_weights);
  out_.overlap_comm = !out_.has_deepspeed || out_.stage == 3;
  take("overlap_comm", "zero_optimization.overlap_comm", out_.overlap_comm);
  std::int64_t const h = hidden_size_;
  bool const stage3 = out_.stage == 3;
  out_.reduce_bucket_size = elements("reduce_bucket_size", "reduce_bucket_size", h * h, true);
  out_.allgather_bucket_size = elements("allgather_bucket_size", "allgather_bucket_size", 0, false);
  out_.prefetch_bucket_size = elements(
      "prefetch_bucket_size", "stage3_prefetch_bucket_size",
      static_cast<std::int64_t>(0.9 * static_cast<double>(h) * static_cast<double>(h)), stage3);
  out_.param_persistence_threshold =
      elements("param_persistence_threshold", "stage3_param_persistence_threshold", 10 * h, stage3);
  out_.max_live_parameters =
      elements("max_live_parameters", "stage3_max_live_parameters", 0, false);
  resolve_offload();
}

void Resolver::resolve_offload() {
  if (out_.has_deepspeed) resolve_offload_blocks();
  auto& offload = out_.offload;
  if (offload.optimizer == OffloadDevice::cpu || offload.parameters == OffloadDevice::cpu)
    out_.notes_on_cpus.emplace_back(
        "offloading to the CPU: no effect where the model computes on CPUs, which have the states "
        "anyway; it has one on a GPU or with --device_memory");
  offload.delay_from = args_.delayed_update_from_step;
  TESSERA_VALIDATE(offload.delay_from == 0 || offload.optimizer == OffloadDevice::cpu, ConfigError,
                   "--delayed_update_from_step ", offload.delay_from,
                   " delays the update by the CPU, and offload_optimizer.device is \"",
                   name_of(offload.optimizer), "\"; use device \"cpu\", or leave the option out");
}

void Resolver::resolve_offload_blocks() {
  detail::resolve_communication(args_.deepspeed, out_);
  auto resolved = detail::resolve_offload(args_.deepspeed, out_.stage);
  out_.offload = std::move(resolved.offload);
  for (char const* field : {"offload_optimizer", "offload_param"})
    if (written(concat("zero_optimization.", field, ".device")))
      out_.origins[field] = Origin::deepspeed;
  out_.notes.insert(out_.notes.end(), resolved.notes.begin(), resolved.notes.end());
  out_.cpu_checkpointing = value("activation_checkpointing.cpu_checkpointing").as_bool();
  if (!out_.cpu_checkpointing) return;
  if (args_.gradient_checkpointing)
    out_.notes_on_cpus.emplace_back(
        "activation_checkpointing.cpu_checkpointing: no effect where the model computes on CPUs, "
        "whose activations are in host memory anyway; it has one on a GPU or with --device_memory");
  else
    out_.notes.emplace_back(
        "activation_checkpointing.cpu_checkpointing: no effect without --gradient_checkpointing, "
        "because nothing is recomputed");
}

void Resolver::resolve_optimizer() {
  std::string const p = "optimizer.params.";
  bool const section = json_.given("optimizer.type");
  std::string const algorithm = resolve_algorithm();
  out_.learning_rate = peak_learning_rate(algorithm);
  out_.max_grad_norm =
      match("max_grad_norm", "gradient_clipping", "max_grad_norm", args_.max_grad_norm);
  detail::check_hyperparameters(args_.deepspeed, algorithm);
  resolve_optim_args(algorithm);
  std::vector<optim::Hyperparameter> values;
  for (auto const& rule : optim::optimizer_info(algorithm).hyperparameters)
    values.push_back({rule.name, hyperparameter(algorithm, rule)});
  out_.optimizer =
      optim::make_spec(algorithm, values, section ? optim::one_group() : optim::decay_groups());
  TESSERA_VALIDATE(out_.master_dtype == Dtype::fp32 || optim::is_elementwise(out_.optimizer),
                   ConfigError, source(), ": ", name_of(out_.master_dtype),
                   "_master_weights_and_grads is true with optimizer ", algorithm,
                   ", whose update needs fp32 values of complete parameters or 8-bit states; use "
                   "AdamW, SGD or Lion, or remove the key");
  if (detail::sets_own_rate(out_.optimizer, args_.given("learning_rate")))
    out_.notes.push_back(
        "optim_args: relative_step sets the rate; --learning_rate and the schedule have no effect");
  if (!section) return;
  for (char const* field : {"decay_groups", "adam_l2", "bias_correction"})
    out_.origins[field] = Origin::deepspeed;
  if (out_.optimizer.value("weight_decay") > 0.0)
    out_.notes.push_back(
        "optimizer: one parameter group, so biases and norms also decay; without the section they "
        "do not");
}

/// An optimizer section without a rate: DeepSpeed constructs the optimizer with its own default.
double Resolver::peak_learning_rate(std::string const& algorithm) {
  double const default_of_deepspeed = optim::optimizer_info(algorithm).default_rate;
  std::string const key = "optimizer.params.lr";
  bool const flag = args_.given("learning_rate");
  if (!lacks_rate()) return match("learning_rate", key, "learning_rate", args_.learning_rate);
  out_.origins["learning_rate"] = flag ? args_.values.origin("learning_rate") : Origin::deepspeed;
  out_.notes.push_back(
      flag ? concat(key, ": not written; --learning_rate ", args_.learning_rate,
                    " is used (DeepSpeed itself would take ", default_of_deepspeed, ")")
           : concat(key, ": not written; DeepSpeed's default ", default_of_deepspeed,
                    " is used, not that of --learning_rate (", args_.learning_rate, ")"));
  return flag ? args_.learning_rate : default_of_deepspeed;
}

/// DeepSpeed's Adam is AdamW unless adam_w_mode is false.
std::string Resolver::resolve_algorithm() {
  if (json_.given("optimizer.type")) {
    out_.origins["optimizer"] = Origin::deepspeed;
    std::string const type = value("optimizer.type").as_string();
    bool const decoupled = value("optimizer.params.adam_w_mode").as_bool();
    return type == "Adam" && decoupled ? "AdamW" : type;
  }
  out_.origins["optimizer"] = args_.values.origin("optim");
  if (args_.optim.starts_with("paged_"))
    out_.notes.push_back(concat("optim: no paging, the states of ", args_.optim,
                                " stay in the memory of the weights"));
  for (auto const& info : optim::optimizers())
    if (std::ranges::find(info.hugging_face_names, args_.optim) != info.hugging_face_names.end())
      return info.algorithm;
  throw InternalError(concat("--optim ", args_.optim, " belongs to no optimizer"));
}

/// --optim_args belongs to --optim, which a DeepSpeed optimizer section replaces.
void Resolver::resolve_optim_args(std::string const& algorithm) {
  auto const& text = args_.values.value(argument_table(), "optim_args");
  if (text.is_null()) return;
  TESSERA_VALIDATE(!json_.given("optimizer.type"), ConfigError, source(),
                   ": the section 'optimizer' replaces --optim, but --optim_args is ", text.dump(),
                   "; move its values to optimizer.params");
  optim_args_ = detail::parse_optim_args(text.as_string(), optim::optimizer_info(algorithm));
}

std::optional<double> Resolver::optim_arg(std::string const& name, std::string const& field) {
  for (auto const& given : optim_args_)
    if (given.name == name) return out_.origins[field] = Origin::flag, given.value;
  return std::nullopt;
}

/// --adam_beta1 belongs to optimizers with two betas: transformers does not give it to Adafactor.
double Resolver::hyperparameter(std::string const& algorithm,
                                optim::HyperparameterRule const& rule) {
  std::string const name = rule.name, key = "optimizer.params." + name;
  if (algorithm == "Adafactor" && name == "beta1")
    return optim_arg(name, name).value_or(rule.value);
  if (rule.is_derived)
    return detail::rate_multiple(
        args_.deepspeed, name, {out_.learning_rate, !lacks_rate() || args_.given("learning_rate")});
  if (name == "beta1") return beta(0, rule, args_.adam_beta1);
  if (name == "beta2") return beta(1, rule, args_.adam_beta2);
  if (name == "eps") return from_flag(rule, key, "adam_epsilon", args_.adam_epsilon);
  if (name == "weight_decay") return from_flag(rule, key, name, args_.weight_decay);
  if (auto const given = optim_arg(name, name)) return *given;
  if (!written(key)) return rule.value;
  out_.origins[name] = Origin::deepspeed;
  auto const& given = value(key);
  return given.is_bool() ? (given.as_bool() ? 1.0 : 0.0) : given.as_double();
}

/// A hyperparameter that has a flag. Without flag and key it is the optimizer's own default, which
/// may differ from the flag's: Adagrad's eps is 1e-10.
double Resolver::from_flag(optim::HyperparameterRule const& rule, std::string const& key,
                           std::string const& flag, double flag_value) {
  std::string const field = std::string(rule.name) == "eps" ? "epsilon" : rule.name;
  if (auto const given = optim_arg(rule.name, field)) {
    TESSERA_VALIDATE(!args_.given(flag) || *given == flag_value, UsageError,
                     "--optim_args: ", rule.name, " is ", *given, " but --", flag, " is ",
                     flag_value, "; remove one of them");
    return *given;
  }
  if (!json_.given(key) && !args_.given(flag)) return rule.value;
  return match(field, key, flag, flag_value);
}

double Resolver::beta(std::size_t index, optim::HyperparameterRule const& rule, double flag_value) {
  std::string const key = "optimizer.params.betas", flag = concat("adam_", rule.name);
  if (!written(key)) return from_flag(rule, key, flag, flag_value);
  auto const& betas = value(key);
  auto const good = [](ConfigTree const& beta) {
    return beta.is_number() && beta.as_double() >= 0.0 && beta.as_double() < 1.0;
  };
  TESSERA_VALIDATE(
      betas.is_array() && betas.size() == 2 && std::ranges::all_of(betas.as_array(), good),
      ConfigError, source(), ": ", key, " is ", betas.dump(),
      "; it must be two numbers from 0 to below 1");
  double const json = betas.as_array()[index].as_double();
  if (args_.given(flag) && flag_value != json) contradiction(key, betas, flag, flag_value);
  out_.origins[rule.name] = Origin::deepspeed;
  return json;
}

void Resolver::resolve_schedule() {
  out_.lr_scheduler_type = args_.lr_scheduler_type;
  out_.lr_scheduler_kwargs = args_.lr_scheduler_kwargs;
  out_.origins["lr_scheduler_kwargs"] = args_.values.origin("lr_scheduler_kwargs");
  out_.warmup_steps = args_.warmup_steps;
  out_.origins["lr_scheduler_type"] = args_.values.origin("lr_scheduler_type");
  out_.origins["warmup_steps"] =
      args_.values.origin(args_.given("warmup_steps") ? "warmup_steps" : "warmup_ratio");
  if (!json_.given("scheduler.type")) return;
  check_schedule();
  out_.scheduler = args_.deepspeed.tree.at("scheduler");
  out_.origins["scheduler"] = Origin::deepspeed;
  if (args_.given("lr_scheduler_type"))
    out_.notes.push_back(
        "lr_scheduler_type: no effect, the scheduler section of the DeepSpeed configuration is "
        "used");
  std::string const p = "scheduler.params.";
  if (written(p + "warmup_max_lr") && args_.given("learning_rate") &&
      value(p + "warmup_max_lr").as_double() != args_.learning_rate)
    contradiction(p + "warmup_max_lr", value(p + "warmup_max_lr"), "learning_rate",
                  args_.learning_rate);
  note_cycled_betas();
  auto const* params = out_.scheduler.find("params");
  if (!params || !params->is_object()) return;
  if (auto const* low = params->find("warmup_min_lr"); low && *low == ConfigTree("auto"))
    out_.scheduler["params"].set("warmup_min_lr", 0.0);
  if (auto const* high = params->find("warmup_max_lr"); high && *high == ConfigTree("auto"))
    out_.scheduler["params"].set("warmup_max_lr",
                                 lacks_rate() ? args_.learning_rate : out_.learning_rate);
}

/// The optimizer is resolved already.
void Resolver::note_cycled_betas() {
  if (value("scheduler.type").as_string() != "OneCycle" ||
      !value("scheduler.params.cycle_momentum").as_bool())
    return;
  if (out_.optimizer.has("beta1") && out_.optimizer.has("beta2")) {
    out_.notes.push_back(
        concat("scheduler OneCycle: cycle_momentum is true, so that beta1 follows "
               "the cycle and beta2 is 0.99 instead of ",
               out_.optimizer.value("beta2"), ", as in DeepSpeed"));
    return;
  }
  out_.notes.push_back(concat("scheduler OneCycle: cycle_momentum has no effect, ",
                              out_.optimizer.algorithm, " has no betas"));
  out_.scheduler["params"].set("cycle_momentum", false);
}

/// What is wrong whatever the number of steps is, before a model is loaded.
void Resolver::check_schedule() const {
  std::string const type = value("scheduler.type").as_string(), p = "scheduler.params.";
  auto const require = [&](char const* name) {
    TESSERA_VALIDATE(json_.given(p + name), ConfigError, source(), ": scheduler.type ", type,
                     " needs ", p, name);
  };
  if (type == "OneCycle") require("cycle_min_lr"), require("cycle_max_lr");
  if (type == "WarmupDecayLR" || type == "WarmupCosineLR") require("total_num_steps");
}

/// DeepSpeed's key or the flag.
void Resolver::resolve_data() {
  detail::copy_arguments(args_, out_);
  bool const key = written("dataloader_drop_last") && value("dataloader_drop_last").as_bool();
  out_.drop_last = args_.dataloader_drop_last || key;
  out_.origins["drop_last"] = key ? Origin::deepspeed : args_.values.origin("dataloader_drop_last");
}

template <class... Why>
void require(bool holds, Why const&... why) {
  TESSERA_VALIDATE(holds, ConfigError, why...);
}

void check_optimizer(ResolvedConfig const& c) {
  auto const& o = c.offload;
  auto const& name = c.optimizer.algorithm;
  auto const is_plain = &optim::StateSpec::is_plain;
  require(c.stage == 0 || !optim::is_compressing(c.optimizer), "optimizer ", name,
          " at ZeRO stage ", c.stage,
          ": 1-bit optimizers are not compatible with ZeRO, because every rank keeps the momentum "
          "of all parameters; use zero_optimization.stage 0, or AdamW");
  if (o.optimizer == OffloadDevice::none) return;
  require(o.ratio == 1.0 || std::ranges::all_of(c.optimizer.states, is_plain),
          "offload_optimizer.ratio is ", o.ratio, " with ", name,
          ", whose states are not element-wise fp32 values; leave ratio out");
  require(o.delay_from == 0 || o.ratio == 1.0, "the delayed update with offload_optimizer.ratio ",
          o.ratio,
          ": the other weights would have the update; leave ratio or "
          "--delayed_update_from_step out");
  require(o.delay_from == 0 || optim::is_elementwise(c.optimizer) || c.optimizer.has_codes(),
          "the delayed update with ", name,
          ", whose update needs complete parameters of all ranks; use AdamW, Lion or another "
          "element-wise optimizer, or leave the delayed update out");
  require(o.optimizer != OffloadDevice::nvme || c.state_dtype == Dtype::fp32 ||
              std::ranges::none_of(c.optimizer.states, is_plain),
          "offload_optimizer to NVMe with ", name,
          ": its states of 16 bits stay in memory; use fp32 states");
}

/// Stages 0 and 1, and 2 without reduce_scatter, reduce as configured; DeepSpeed's other reductions
/// know only a division before them.
void check_averaging(ResolvedConfig const& c) {
  require(c.max_grad_norm >= 0.0, "max_grad_norm is ", c.max_grad_norm,
          "; use a positive norm, or 0 for no clipping");
  require(c.accumulation_dtype == Dtype::fp32 || c.accumulation_dtype == c.dtype,
          "data_types.grad_accum_dtype is ", name_of(c.accumulation_dtype), " with ",
          name_of(c.dtype), " weights; use fp32 or the dtype of the weights");
  bool const averages = c.gradient_allreduce_op == "mean";
  require(averages || c.stage < 3, "gradient_allreduce_op is sum at stage 3, where gradients are ",
          "averaged; use a lower stage, or mean and a learning rate multiplied by the number of "
          "ranks");
  if (!averages || c.stage < 2 || (c.stage == 2 && !c.reduce_scatter)) return;
  require(!c.prescale_gradients, "prescale_gradients is true at stage ", c.stage,
          ", whose reduce-scatter divides before it in any case; remove it");
  require(c.gradient_predivide_factor == 1.0, "gradient_predivide_factor is ",
          c.gradient_predivide_factor, " at stage ", c.stage,
          ", whose reduce-scatter divides by the number of ranks before it; remove it");
}

}  // namespace

ResolvedConfig resolve(TrainingArguments const& arguments, int world_size,
                       std::int64_t hidden_size) {
  TESSERA_EXPECT(world_size > 0);
  auto out = Resolver(arguments, world_size, hidden_size).run();
  check_together(out);
  return out;
}

void check_together(ResolvedConfig const& config) {
  check_optimizer(config);
  check_averaging(config);
}

ConfigTree describe(ResolvedConfig const& config) { return detail::describe_fields(config); }

}  // namespace tessera::config
