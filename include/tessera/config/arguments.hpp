#pragma once
/// The arguments of tessera-train: those of Hugging Face's run_clm.py (ModelArguments,
/// DataTrainingArguments, TrainingArguments of transformers 5) and a few of Tessera's own, as flags
/// or as a flat JSON file. Reference: docs/reference/options.md.

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/config/option_field.hpp"
#include "tessera/config/option_values.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/recompute.hpp"
#include "tessera/kernels/launch/device_settings.hpp"

namespace tessera::config {

/// `best`: save_strategy only.
enum class Interval { no, steps, epoch, best };
/// The values of --train_sampling_strategy, see data::SampleOrder.
enum class Sampling { random, sequential, philox, group_by_length };
/// How many ranks share a shard file.
struct RanksPerFile {
  int count = 1;  ///< 0: all ranks of a node
  bool operator==(RanksPerFile const&) const = default;
};
/// Steps between checkpoints in the memory of the nodes.
struct MemorySaveSteps {
  static constexpr std::int64_t off = 0, automatic = -1;
  std::int64_t count = off;
  bool operator==(MemorySaveSteps const&) const = default;
};
/// Whether training continues while a checkpoint is written. automatic: if host memory has room for
/// a snapshot of the state.
enum class AsyncSave { automatic, on, off };
/// Bits are the same with the same ranks (run), or with any power of two of ranks (world).
enum class Reproducible { run, world };
/// What follows when ranks compute different results of the same micro-batch: the run ends, and
/// `tessera run` leaves the node out; it ends for good; or the step is computed again.
enum class OnCorruption { exclude, stop, warn };
/// What a training learns from: the text of run_clm.py, examples as TRL's SFTTrainer, or
/// preferences as its DPOTrainer.
enum class Task { clm, sft, dpo };
/// The first three are those of sft, the others those of dpo; chunked_nll is nll.
enum class LossType { nll, chunked_nll, dft, sigmoid, hinge, ipo, robust };
/// How packing puts examples into rows; bfd_requeue is bfd_split.
enum class PackingStrategy { bfd, bfd_split, bfd_requeue, wrapped };
/// See data::RecordTemplate.
enum class RecordTemplate { none, alpaca };

template <>
inline constexpr std::array enum_names<Interval>{"no", "steps", "epoch", "best"};
template <>
inline constexpr std::array enum_names<Sampling>{"random", "sequential", "philox",
                                                 "group_by_length"};
template <>
inline constexpr std::array enum_names<AsyncSave>{"auto", "on", "off"};
template <>
inline constexpr std::array enum_names<Reproducible>{"run", "world"};
template <>
inline constexpr std::array enum_names<OnCorruption>{"exclude", "stop", "warn"};
template <>
inline constexpr std::array enum_names<Task>{"clm", "sft", "dpo"};
template <>
inline constexpr std::array enum_names<LossType>{"nll",   "chunked_nll", "dft",   "sigmoid",
                                                 "hinge", "ipo",         "robust"};
template <>
inline constexpr std::array enum_names<PackingStrategy>{"bfd", "bfd_split", "bfd-requeue",
                                                        "wrapped"};
template <>
inline constexpr std::array enum_names<RecordTemplate>{"none", "alpaca"};
template <>
inline constexpr std::array enum_names<Recompute>{"none", "light", "block"};
template <>
inline constexpr std::array enum_names<kernels::DeviceAttention>{"auto", "cudnn", "portable"};
template <>
inline constexpr std::array enum_names<kernels::DeviceGelu>{"auto", "fused", "separate"};
template <>
inline constexpr std::array enum_names<log::Level>{"debug", "info", "warning", "error"};

/// "node" or a number of ranks. @throws UsageError for anything else
ConfigTree to_tree(RanksPerFile ranks);
void assign(RanksPerFile& ranks, ConfigTree const& value, std::string const& name);
/// "auto" or a number of steps. @throws UsageError for anything else
ConfigTree to_tree(MemorySaveSteps steps);
void assign(MemorySaveSteps& steps, ConfigTree const& value, std::string const& name);

/// A DeepSpeed configuration, parsed once.
struct DeepSpeedConfig {
  ConfigTree document;             ///< as written; null: there is none
  std::string source;              ///< where it was read, for messages
  ConfigTree tree;                 ///< in current spellings
  OptionValues keys;               ///< every value by its dotted name
  std::vector<std::string> notes;  ///< deprecated keys, and keys whose effect differs

  DeepSpeedConfig() = default;
  /// @throws ConfigError naming the key: unknown, of another type, out of range, refused
  DeepSpeedConfig(ConfigTree written, std::string file);
  bool is_given() const { return !document.is_null(); }
  /// The value of a key, else its default.
  ConfigTree const& value(std::string_view key) const;
  /// The written value; null for a key that is absent or "auto".
  ConfigTree const* find(std::string_view key) const;
};

/// Options that reach the engine or the model as they are given: no key of the DeepSpeed JSON sets
/// them. resolve() copies them, and both descriptions have them, from their rows.
struct EngineOptions {
  double label_smoothing_factor = 0.0;
  double neftune_noise_alpha = 0.0;  ///< 0: no noise
  LossType loss_type = LossType::nll;
  Reproducible reproducible = Reproducible::run;
  bool reduce_once = false;  ///< stages 2 and 3: gradients are reduced in the last micro-step only
  // a frozen base as codes, in the words of transformers' BitsAndBytesConfig
  bool load_in_4bit = false, load_in_8bit = false;
  std::string bnb_4bit_quant_type = "nf4";
  bool bnb_4bit_use_double_quant = false;
  std::string bnb_4bit_compute_dtype;  ///< empty: that of products
  bool quantizes_base() const { return load_in_4bit || load_in_8bit; }
  bool reproducible_world() const { return reproducible == Reproducible::world; }
  bool operator==(EngineOptions const&) const = default;
};

/// Values as given. Batch sizes, precision, optimizer and clipping may also be set in the DeepSpeed
/// configuration: resolve() (resolved_config.hpp) combines both, and programs read these values
/// from ResolvedConfig.
struct TrainingArguments : EngineOptions {
  // model; empty: none
  std::filesystem::path model_name_or_path, config_name, tokenizer_name;
  std::string config_overrides;  ///< "n_embd=64,n_layer=2"
  std::string model_type;
  std::string dtype;  ///< "", "auto", "float32", "bfloat16", "float16"

  // what trains
  bool use_peft_lora = false;
  std::int64_t lora_r = 8;
  double lora_alpha = 8.0, lora_dropout = 0.0;
  std::vector<std::string> lora_target_modules;  ///< empty: PEFT's default for the family
  bool use_rslora = false, use_dora = false;
  std::string init_lora_weights = "true";         ///< or "false", "gaussian"
  std::vector<std::string> lora_modules_to_save;  ///< train in full next to the adapters
  std::filesystem::path adapter;                  ///< PEFT directory to start from
  std::string frozen_parameters;                  ///< regular expression of complete names

  // data
  std::filesystem::path train_file, validation_file, test_file;
  std::int64_t validation_split_percentage = 5;
  std::optional<std::int64_t> block_size, max_train_samples, max_eval_samples, max_predict_samples;
  bool keep_linebreaks = true;
  std::string data_mixture;  ///< "0.7,0.3": weights of the parts of train_file; "": one data set
  bool skip_broken_records = false;
  bool append_eos = false;  ///< the end-of-text token after each record
  /// Documents of packed sequences, in Megatron-LM's words.
  bool reset_attention_mask = false, reset_position_ids = false, eod_mask_loss = false;
  std::optional<std::int64_t> preprocessing_num_workers;  ///< none: all cores of the process
  // supervised fine-tuning, in TRL's words
  Task task = Task::clm;
  std::int64_t max_length = 1024;  ///< tokens of an example or of a packed row; 0: no limit
  std::string dataset_text_field = "text";
  RecordTemplate record_template = RecordTemplate::none;
  std::filesystem::path chat_template_path;
  std::string eos_token;                     ///< empty: the tokenizer's
  std::optional<bool> completion_only_loss;  ///< none: where there is a completion
  bool assistant_only_loss = false, packing = false, padding_free = false;
  PackingStrategy packing_strategy = PackingStrategy::bfd;
  std::optional<bool> eval_packing;  ///< none: packing
  std::int64_t pad_to_multiple_of = 1;
  // preferences, in TRL's words
  double beta = 0.1, label_smoothing = 0.0;
  std::filesystem::path ref_model_name_or_path;  ///< empty: the model before the training
  bool precompute_ref_log_probs = false;
  bool dataloader_drop_last = false;
  std::int64_t dataloader_num_workers = 0;                 ///< threads that load ahead
  std::optional<std::int64_t> dataloader_prefetch_factor;  ///< none: 2
  Sampling train_sampling_strategy = Sampling::random;
  bool group_by_length = false;  ///< transformers 4's name of that strategy

  // what to do
  std::filesystem::path output_dir = "trainer_output";
  bool overwrite_output_dir = false;
  bool do_train = false, do_eval = false, do_predict = false, do_generate = false;
  std::string resume_from_checkpoint;  ///< "" or "auto": the newest if any; "true", "latest": there
                                       ///< must be one; "never"; a step; a path
  bool allow_changed_data = false;     ///< resume with another text, tokenizer or order of samples
  bool print_config = false, version = false;
  std::string help;  ///< "true", or the option to explain; empty: not given

  // length and batches
  std::int64_t per_device_train_batch_size = 8, per_device_eval_batch_size = 8,
               gradient_accumulation_steps = 1;
  bool auto_find_batch_size = false;  ///< halve the micro-batch until it fits into memory
  double num_train_epochs = 3.0;
  std::int64_t max_steps = -1;  ///< positive: overrides num_train_epochs
  std::int64_t seed = 42;
  std::optional<std::int64_t> data_seed;  ///< none: seed

  // optimizer and schedule
  double learning_rate = 5e-5, weight_decay = 0.0, adam_beta1 = 0.9, adam_beta2 = 0.999,
         adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;  ///< 0: no clipping
  std::string optim = "adamw_torch_fused";
  std::string lr_scheduler_type = "linear";
  ConfigTree lr_scheduler_kwargs;  ///< null: none
  double warmup_steps = 0.0;       ///< below 1: a fraction of all steps; warmup_ratio too
  bool fp16 = false, bf16 = false;
  bool fp16_full_eval = false, bf16_full_eval = false;
  std::string master_weights = "auto";
  bool gradient_checkpointing = false;  ///< means recompute block
  Recompute recompute = Recompute::none;

  // log, evaluate, save. Step counts below 1 are a fraction of all steps: see step_interval().
  Interval logging_strategy = Interval::steps;
  double logging_steps = 500.0;
  std::filesystem::path logging_dir;   ///< directory of TensorBoard files; empty: output_dir/runs
  std::string run_name;                ///< in W&B and MLflow; empty: the last part of output_dir
  bool logging_nan_inf_filter = true;  ///< leave losses that are not finite out of log lines
  std::string include_num_input_tokens_seen = "no";  ///< "all" and "non_padding" are the same here
  bool log_on_each_node = true;  ///< the first rank of each node logs at log_level
  bool eval_on_start = false;    ///< evaluate once before the first step
  Interval eval_strategy = Interval::no;
  double eval_steps = 500.0;  ///< defaults to logging_steps
  double eval_delay = 0.0;    ///< steps or epochs (as eval_strategy) before the first evaluation
  bool load_best_model_at_end = false;
  std::string metric_for_best_model;      ///< "loss", "perplexity", perhaps with "eval_"; "": none
  std::optional<bool> greater_is_better;  ///< none: false
  std::optional<std::int64_t> early_stopping_patience;  ///< evaluations without improvement
  double early_stopping_threshold = 0.0;                ///< smallest improvement that counts
  Interval save_strategy = Interval::steps;
  double save_steps = 500.0;
  std::optional<std::int64_t> save_total_limit;
  bool save_only_model = false;
  MemorySaveSteps memory_save_steps;
  AsyncSave async_save = AsyncSave::automatic;
  RanksPerFile checkpoint_ranks_per_file;
  std::int64_t max_save_failures =
      3;  ///< failed saves in a row before the run ends; 0: the first one ends it
  std::optional<std::int64_t>
      max_skipped_steps;  ///< in a row before the run ends; none: what the loss scale can cure
  log::Level log_level = log::Level::info, log_level_replica = log::Level::warning;

  std::filesystem::path log_dir;  ///< a log file for each rank; empty: none

  // machine
  bool use_cpu = false;                    ///< --device cpu
  std::string device_memory, host_memory;  ///< most bytes of a rank; empty: all there are
  /// From this optimizer step on the CPU's update overlaps the next step; 0: never
  std::int64_t delayed_update_from_step = 0;
  std::optional<bool> tf32;   ///< fp32 matrix products in TF32 on a GPU
  bool fp8 = false;           ///< products of blocks in fp8 in training
  bool deterministic = true;  ///< bit-for-bit reproducible runs
  kernels::DeviceAttention device_attention = kernels::DeviceAttention::automatic;
  kernels::DeviceGelu device_gelu = kernels::DeviceGelu::automatic;
  std::string device_product_algorithms;  ///< file of measured algorithms; empty: none is measured
  bool device_graphs = false;             ///< on a GPU: each block's kernels as one graph
  /// Multiprocessors of a GPU, at most, for NCCL; 0: its choice
  std::int64_t communication_multiprocessors = 0;
  std::string nccl_cta_policy = "default";  ///< ncclConfig_t::CTAPolicy
  bool needs_gpu = false;                   ///< --device gpu: an error without a GPU
  std::optional<std::int64_t>
      threads;                       ///< OpenMP threads per rank; none: the cores of the launcher
  double time_limit_minutes = 0.0;   ///< 0: the limit of the batch system
  bool auto_tune = false;            ///< search for the fastest configuration first
  double tune_minutes = 5.0;         ///< minutes for auto_tune
  std::string collectives = "auto";  ///< between nodes: auto, flat or two-level
  double comm_timeout_seconds = 300.0;  ///< timeout of every wait for other ranks
  double node_timeout_seconds = 30.0;   ///< heartbeat timeout of a node; 0: none
  std::int64_t verify_steps = 0;        ///< steps between two verified ones; 0: none is
  OnCorruption on_corruption = OnCorruption::exclude;

  // generation from the trained weights
  std::string prompt;
  std::int64_t max_new_tokens = 50;
  double temperature = 1.0;
  std::int64_t top_k = 50;
  std::filesystem::path prompt_file;
  std::filesystem::path eval_prompts;  ///< prompts that every evaluation continues; empty: none
  double top_p = 1.0, min_p = 0.0, repetition_penalty = 1.0;
  std::vector<std::string> stop_strings;

  DeepSpeedConfig deepspeed;
  ConfigTree fsdp_config;  ///< null if none

  OptionValues values;  ///< the given values with their origin
  std::vector<std::string>
      hints;  ///< accepted options whose effect differs: one line each, for the log

  /// Training or evaluation data is packed.
  bool packing_rows() const { return packing || eval_packing.value_or(false); }
  /// Given by flag or run file (not a default).
  bool given(std::string_view name) const { return values.given(name); }
};

/// `tessera-train [run.json] [flags]`: reads the run file, then the flags over it, then the
/// DeepSpeed file.
/// @param words  the command line without the program's name
/// @param read  gives the documents; a job's other ranks take what rank 0 has read
/// @throws UsageError (64) for flags and contradictions between them, ConfigError (78) for keys of
/// files, IoError, DataError
using ReadDocument = std::function<ConfigTree(std::string const& file)>;
ConfigTree read_document(std::string const& file);
TrainingArguments parse_arguments(std::vector<std::string> const& words,
                                  ReadDocument const& read = read_document);

/// Parses any part of a command line: it need not name something to do, a model or files.
TrainingArguments parse_options(std::vector<std::string> const& words,
                                ReadDocument const& read = read_document);
/// @throws UsageError naming what a run still needs
void require_run(TrainingArguments const& arguments);

/// Reads only the flags, no file: whether --help or --version is given.
/// @throws UsageError for wrong flags
struct FirstLook {
  std::string help;  ///< as TrainingArguments::help
  bool version = false;
};
FirstLook look_at_flags(std::vector<std::string> const& words);

/// Every value with its origin: {"learning_rate": {"value": 5e-05, "origin": "flag"}, ...}.
ConfigTree describe(TrainingArguments const& arguments);

/// Steps between events: 0.1 of 1000 steps is 100 (rounded up), 25 is 25.
std::int64_t step_interval(double value, std::int64_t total_steps);
}  // namespace tessera::config
