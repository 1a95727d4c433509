#pragma once
/// How flags, run file and DeepSpeed JSON become one resolved configuration. Reference:
/// docs/reference/deepspeed-config.md.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/config/arguments.hpp"
#include "tessera/config/offload.hpp"
#include "tessera/config/option_values.hpp"
#include "tessera/config/reporting.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/optim/loss_scaler.hpp"
#include "tessera/optim/optimizer_spec.hpp"

namespace tessera::config {

/// Errors of quantized gradients that return in the next steps (LoCo).
struct ErrorFeedback {
  double beta = 0.8;            ///< part of the old error that a step keeps
  double reset_steps = 1024.0;  ///< steps after which errors start from zero
  bool operator==(ErrorFeedback const&) const = default;
};

/// The values that a run uses, from flags, run file and DeepSpeed JSON. A comparable value.
struct ResolvedConfig : EngineOptions {
  int world_size = 1;

  // train_batch_size = micro_batch_size * accumulation_steps * world_size, in samples
  std::int64_t train_batch_size = 8;
  std::int64_t micro_batch_size = 8;
  std::int64_t accumulation_steps = 1;

  // precision
  Dtype dtype = Dtype::fp32;                ///< dtype of weights, gradients and the residual stream
  Dtype product_dtype = Dtype::fp32;        ///< dtype of matrix products; not `dtype`: autocast
  bool fp8 = false;                         ///< products of blocks in training
  Dtype communication_dtype = Dtype::fp32;  ///< dtype of gradients in reductions
  Dtype accumulation_dtype = Dtype::fp32;   ///< dtype of gradients between micro-steps
  Dtype master_dtype = Dtype::fp32;         ///< dtype of the weights that are updated
  Dtype state_dtype = Dtype::fp32;          ///< dtype of optimizer states with a value per element
  /// The initial master weights are those of the file rounded to `dtype`.
  bool round_master_weights = false;
  bool dynamic_loss_scale = false;
  double static_loss_scale = 1.0;
  std::int64_t initial_scale_power = 16, loss_scale_window = 1000, hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1.0;
  optim::ScaleGrowth loss_scale_growth = optim::ScaleGrowth::deepspeed;
  bool skip_on_nonfinite = true;

  // averaging over the ranks
  bool prescale_gradients = false;
  double gradient_predivide_factor = 1.0;
  std::string gradient_allreduce_op = "mean";
  bool reduce_scatter = true;  ///< false: DeepSpeed's stages 1 and 2 divide as stage 0 does

  // ZeRO; sizes in elements
  std::int64_t stage = 0;
  /// Consecutive ranks that share one copy of the model states (MiCS, HSDP); 0: all ranks.
  std::int64_t shard_group_size = 0;
  bool shards_within_nodes = false;  ///< hybrid_shard: place_on_nodes() sets shard_group_size
  bool hierarchical_gather = false;  ///< groups gather in two levels
  /// Consecutive ranks that keep secondary shards of gathered weights (ZeRO++ hpZ); 1: none.
  std::int64_t secondary_group_size = 1;
  bool quantized_weights = false;    ///< gathers of stage 3 move codes of 8 bits (ZeRO++ qwZ)
  bool quantized_gradients = false;  ///< reductions of stage 3 move codes (ZeRO++ qgZ)
  std::optional<ErrorFeedback> error_feedback;  ///< error feedback of quantized gradients
  /// Consecutive ranks whose gradients are summed before they leave the node: place_on_nodes() sets
  /// it. 0: gradients move as values.
  std::int64_t gradient_node_size = 0;
  bool overlap_comm = true;
  std::int64_t reduce_bucket_size = 500'000'000;
  std::int64_t allgather_bucket_size = 500'000'000;
  std::int64_t prefetch_bucket_size = 50'000'000;
  std::int64_t param_persistence_threshold = 100'000;
  std::int64_t max_live_parameters = 1'000'000'000;
  bool gather_16bit_weights =
      false;  ///< checkpoints and the final model have the weights in the working precision

  Offload offload;
  bool cpu_checkpointing = false;  ///< activation checkpoints of a device in host memory

  // optimizer
  double learning_rate = 5e-5;
  /// One parameter group with a DeepSpeed "optimizer" section; else matrices decay, others do not.
  optim::OptimizerSpec optimizer = optim::make_spec("AdamW");
  double max_grad_norm = 1.0;  ///< 0: no clipping

  /// DeepSpeed's scheduler section, "auto" where only the number of steps can fill it; null:
  /// --lr_scheduler_type holds.
  ConfigTree scheduler;
  std::string lr_scheduler_type = "linear";
  ConfigTree lr_scheduler_kwargs;  ///< null: none
  double warmup_steps = 0.0;       ///< below 1: a share of all steps

  bool drop_last = false;  ///< drop the last incomplete micro-step of an epoch
  Reporting reporting;
  std::optional<Tuning> tuning;  ///< with --auto_tune or DeepSpeed's autotuning

  std::map<std::string, Origin, std::less<>> origins;  ///< by field name; absent: default
  bool has_deepspeed = false;
  std::vector<std::string>
      notes;  ///< accepted keys whose effect differs: one line each, for the log
  std::vector<std::string>
      notes_on_cpus;  ///< notes that are true only if the model computes on CPUs

  bool operator==(ResolvedConfig const&) const = default;
};

/// Combines flags, run file and DeepSpeed JSON. A given flag that contradicts a number in the JSON
/// is an error; a flag that was not given gives way to the number; "auto" takes the flag, as the
/// Trainer of transformers fills it.
/// @param hidden_size  of the model, for "auto" bucket sizes; 0: not known yet, an "auto" bucket
/// size is then an error
/// @throws ConfigError naming both values
ResolvedConfig resolve(TrainingArguments const& arguments, int world_size,
                       std::int64_t hidden_size);

/// resolve() has checked the values with the stage that it has found; for another one they are
/// checked again. @throws ConfigError for values that no engine has together
void check_together(ResolvedConfig const& config);

/// What the run reports, which does not depend on ranks and model. @throws ConfigError
Reporting reporting_of(TrainingArguments const& arguments);
/// The search that precedes the run, if any. @throws ConfigError
std::optional<Tuning> tuning_of(TrainingArguments const& arguments);

/// {"stage": {"value": 3, "origin": "deepspeed"}, ...} for the manifest and --print_config.
ConfigTree describe(ResolvedConfig const& config);

/// Returns the rule of the resolved value of this name, in describe(ResolvedConfig).
Resume resume_of_resolved(std::string_view name);

/// Whether the world size of a configuration is that of the run or a guess.
enum class WorldSize { known, assumed };

/// One line for each: what happens, and what to write instead. An assumed world size gives no
/// warning.
std::vector<std::string> find_traps(TrainingArguments const& arguments,
                                    ResolvedConfig const& config,
                                    WorldSize world_size = WorldSize::known);

/// Bytes; 0: no bound.
struct MemoryBounds {
  std::int64_t device = 0;  ///< --device_memory
  std::int64_t host = 0;    ///< --host_memory
};

/// @throws UsageError when one of the options is not a size
MemoryBounds memory_bounds(TrainingArguments const& arguments);

}  // namespace tessera::config
