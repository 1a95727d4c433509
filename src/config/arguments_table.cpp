#include "tessera/config/option_table.hpp"

#include <string>

#include "detail/option_rows.hpp"

namespace tessera::config {
namespace {

using enum OptionType;

char const* const no_effect = "no effect";
char const* const no_download = "no effect: nothing is downloaded from the Hub";
char const* const no_hub =
    "nothing is uploaded to the Hub; output_dir is a Hugging Face directory that can be uploaded "
    "afterwards";
char const* const use_metrics =
    "nothing is sent to a service; use tensorboard, or metrics.jsonl in output_dir";

void add_model(OptionTable& t) {
  t.group("Model");
  t.add(path, "model_name_or_path", {},
        "Hugging Face model directory to start from (config.json, safetensors)");
  t.add(path, "config_name", {},
        "directory or config.json of a model to train from random weights");
  t.add(string, "model_type", {},
        "model family to train from random weights with its default sizes, such as gpt2 or llama");
  t.add(string, "config_overrides", {}, "changes to the sizes of model_type: n_embd=64,n_layer=2");
  t.add(path, "tokenizer_name", {}, "directory with tokenizer.json, if not model_name_or_path");
  t.add(choice, "dtype", {},
        "working precision; auto: float32; with --bf16 or --fp16: 16-bit weights, not autocast")
      .one_of({"auto", "float32", "bfloat16", "float16"})
      .alias("torch_dtype");
  t.add(path, "cache_dir", {}, "cache directory of the Hub client").hint(no_download);
  t.add(boolean, "use_fast_tokenizer", true, "use the tokenizers library instead of Python code")
      .hint("no effect: tokenizer.json is always used");
  t.add(string, "model_revision", "main", "revision on the Hub").hint(no_download);
  t.add(json, "token", {}, "Hub token").shown_as("text").alias("use_auth_token").hint(no_download);
  t.add(boolean, "trust_remote_code", false, "run Python code from the model directory")
      .hint("no effect: no code from a model directory is run");
  t.add(boolean, "low_cpu_mem_usage", false, "create the model before its weights are loaded")
      .hint("no effect: every rank reads only its own shard");
}

void add_adapters(OptionTable& t) {
  t.group("Adapters and frozen parameters");
  t.add(boolean, "use_peft_lora", false, "LoRA: train only low-rank adapters of linear layers")
      .alias("use_peft");
  t.add(integer, "lora_r", 8, "rank of the adapters").at_least(1).alias("lora_rank");
  t.add(real, "lora_alpha", 8.0, "adapters are scaled by lora_alpha / lora_r").above(0);
  t.add(real, "lora_dropout", 0.0, "dropout of the adapters' inputs").at_least(0).at_most(0.999);
  t.add(list, "lora_target_modules", ConfigTree::Array{},
        "layers to adapt: ends of names, all-linear, or a regular expression; none: PEFT's default")
      .alias("lora_target");
  t.add(boolean, "use_rslora", false, "scale adapters by lora_alpha / sqrt(lora_r)");
  t.add(path, "adapter", {}, "PEFT directory whose adapters start the run (Tessera's own)");
  t.add(boolean, "use_dora", false, "weight-decomposed adapters")
      .refuse("only plain LoRA is computed; leave it out");
  t.add(list, "lora_modules_to_save", {}, "modules that train in full next to the adapters")
      .refuse("only adapters train with use_peft_lora; without it frozen_parameters chooses");
  t.add(string, "frozen_parameters", {},
        "regular expression of the complete names of parameters that do not train (Tessera's own)");
}

void add_work(OptionTable& t) {
  t.group("What to do");
  t.add(path, "output_dir", "trainer_output",
        "run directory: status, metrics, checkpoints, the trained model");
  t.add(boolean, "overwrite_output_dir", false,
        "start fresh over a completed run; an unfinished run resumes unless "
        "resume_from_checkpoint is never");
  t.add(boolean, "do_train", false, "train");
  t.add(boolean, "do_eval", false,
        "evaluate: loss, perplexity and accuracy; on when eval_strategy is not no");
  t.add(boolean, "do_predict", false, "evaluate test_file: loss, perplexity and accuracy");
  t.add(boolean, "do_generate", false, "continue prompts with the trained weights (Tessera's own)");
  t.add(json, "resume_from_checkpoint", {},
        "checkpoint to resume from; auto or none: the newest complete one of output_dir, if any; "
        "true: there must be one")
      .shown_as("auto, true, false, never, step or path");
  t.add(boolean, "allow_changed_data", false,
        "resume although text, tokenizer, block size or order of the samples changed (Tessera's "
        "own)");
  t.add(json, "deepspeed", {}, "DeepSpeed configuration file; in a run file also the object itself")
      .shown_as("path or JSON object");
  t.add(path, "accelerate_config", {},
        "configuration file of Accelerate (YAML or JSON): precision, DeepSpeed, FSDP");
  t.add(boolean, "print_config", false,
        "print every resolved value with its origin and exit (Tessera's own)");
  t.add(boolean, "help", false, "print this text and exit").alias("h");
  t.add(boolean, "version", false, "print the version and exit");
}

void add_length(OptionTable& t) {
  t.group("Length and batches");
  t.add(integer, "per_device_train_batch_size", 8, "sequences per rank and micro-step")
      .at_least(1)
      .unit("sequences")
      .alias("per_gpu_train_batch_size");
  t.add(integer, "per_device_eval_batch_size", 8, "sequences per rank and evaluation step")
      .at_least(1)
      .unit("sequences")
      .alias("per_gpu_eval_batch_size");
  t.add(integer, "gradient_accumulation_steps", 1, "micro-steps per optimizer step")
      .at_least(1)
      .unit("micro-steps");
  t.add(real, "num_train_epochs", 3.0, "passes over the training data").at_least(0).unit("epochs");
  t.add(integer, "max_steps", -1, "optimizer steps; a positive value overrides num_train_epochs")
      .at_least(-1)
      .unit("steps");
  t.add(integer, "seed", 42, "seed of random weights, dropout and data order").at_least(0);
  t.add(integer, "data_seed", {}, "seed of the data order only; none: seed").at_least(0);
  t.add(boolean, "auto_find_batch_size", false,
        "halve per_device_train_batch_size until the activations fit into memory");
  t.add(boolean, "full_determinism", false,
        "bit-for-bit reproducible runs; the default unless deterministic is false");
}

void add_precision(OptionTable& t) {
  t.group("Precision and memory");
  t.add(boolean, "fp16", false,
        "float16 products with loss scaling; with DeepSpeed or FSDP also float16 weights");
  t.add(boolean, "bf16", false,
        "bfloat16 products (autocast); with DeepSpeed or FSDP also bfloat16 weights");
  t.add(choice, "master_weights", "auto",
        "initial fp32 master weights of 16-bit weights: file: as stored; rounded: as the weights; "
        "auto: rounded with DeepSpeed")
      .one_of({"auto", "file", "rounded"});
  t.add(integer, "max_skipped_steps", {},
        "consecutive skipped steps after which training continues; none: what the loss scale can "
        "cure, else 10 (Tessera's own)")
      .at_least(0)
      .unit("steps");
  t.add(boolean, "gradient_checkpointing", false,
        "activation checkpointing: keep only each block's input and recompute the rest in backward")
      .alias("activation_checkpointing");
  t.add(choice, "recompute", {},
        "what backward computes again: none; light: norms and activation functions; block: "
        "gradient_checkpointing (Tessera's own)")
      .one_of({"none", "light", "block"});
  t.add(json, "gradient_checkpointing_kwargs", {}, "arguments of gradient checkpointing")
      .shown_as("JSON object")
      .alias("activation_checkpointing_kwargs")
      .hint("no effect: every block is checkpointed");
  t.add(boolean, "fp16_full_eval", false,
        "evaluate in float16 in a run without --do_train; in training an error unless --fp16");
  t.add(boolean, "bf16_full_eval", false,
        "evaluate in bfloat16 in a run without --do_train; in training an error unless --bf16");
  t.add(boolean, "tf32", {},
        "compute fp32 matrix products in TF32 on a GPU's tensor cores; an error on the host");
  t.add(boolean, "fp8", false,
        "fp8 products of blocks in bf16 training; emulated on the host (Tessera's own)");
  t.add(string, "half_precision_backend", "auto", "mixed-precision backend")
      .alias("fp16_backend")
      .hint("no effect: Tessera has one implementation");
  t.add(string, "fp16_opt_level", "O1", "apex optimization level")
      .hint("no effect: Tessera has one implementation");
  t.add(boolean, "torch_compile", false, "compile the model")
      .hint("no effect: all kernels are compiled when Tessera is built");
  t.add(string, "torch_compile_backend", {}, "compiler")
      .hint("no effect: all kernels are compiled when Tessera is built");
  t.add(string, "torch_compile_mode", {}, "compiler mode")
      .hint("no effect: all kernels are compiled when Tessera is built");
  t.add(string, "torchdynamo", {}, "compiler")
      .hint("no effect: all kernels are compiled when Tessera is built");
  t.add(boolean, "jit_mode_eval", false, "evaluate with a traced model").hint(no_effect);
  t.add(boolean, "use_ipex", false, "Intel's extension of PyTorch").hint(no_effect);
  t.add(boolean, "use_liger_kernel", false, "Liger kernels")
      .hint("no effect: Tessera's own kernels are used");
  t.add(json, "liger_kernel_config", {}, "configuration of the Liger kernels")
      .shown_as("JSON object")
      .hint("no effect: Tessera's own kernels are used");
  t.add(boolean, "use_cache", false, "key-value cache during training").hint(no_effect);
  t.add(integer, "torch_empty_cache_steps", {},
        "steps between calls that empty PyTorch's memory cache")
      .hint("no effect: Tessera has no such cache");
}

void add_log(OptionTable& t) {
  t.group("Log and evaluation");
  t.add(real, "logging_steps", 500.0, "steps between log lines; below 1: a fraction of all steps")
      .above(0)
      .unit("steps");
  t.add(boolean, "logging_first_step", false, "also log the first step")
      .hint("no effect: the first step is always logged");
  t.add(choice, "logging_strategy", "steps",
        "when to write log lines; metrics.jsonl always has every step")
      .one_of({"no", "steps", "epoch"});
  t.add(choice, "eval_strategy", "no", "when to evaluate during training")
      .one_of({"no", "steps", "epoch"})
      .alias("evaluation_strategy");
  t.add(real, "eval_steps", {},
        "steps between evaluations; none: logging_steps; below 1: a fraction of all steps")
      .above(0)
      .unit("steps");
  t.add(boolean, "eval_on_start", false, "evaluate once before the first step");
  t.add(real, "eval_delay", 0.0, "steps or epochs (as eval_strategy) before the first evaluation")
      .at_least(0);
  t.add(integer, "early_stopping_patience", {},
        "end training after N evaluations in a row without a better metric (Trainer's callback)")
      .at_least(1)
      .unit("evaluations");
  t.add(real, "early_stopping_threshold", 0.0,
        "smallest change of the metric that counts as better for early stopping")
      .at_least(0);
  auto const levels = {"debug", "info", "warning", "error", "critical", "passive"};
  t.add(choice, "log_level", "passive", "log level of rank 0; passive: info")
      .one_of({levels.begin(), levels.end()});
  t.add(choice, "log_level_replica", "warning", "log level of the other ranks")
      .one_of({levels.begin(), levels.end()});
  t.add(path, "log_dir", {},
        "directory for one log file per rank (rank_00003.log) at level debug; none: no files "
        "(Tessera's own)");
}

void add_reporting(OptionTable& t) {
  auto& report = t.add(list, "report_to", ConfigTree::Array{"none"},
                       "tensorboard (or all): also write TensorBoard event files")
                     .one_of({"none", "all", "tensorboard"});
  for (char const* name : {"wandb", "mlflow", "comet_ml", "clearml", "dvclive", "swanlab",
                           "trackio", "azure_ml", "neptune", "flyte", "codecarbon"})
    report.except(name, use_metrics);
  t.add(boolean, "disable_tqdm", {}, "no progress bar")
      .hint("no effect: Tessera prints no progress bar to a batch log");
  t.add(boolean, "log_on_each_node", true,
        "the first rank of each node logs at log_level; false: only rank 0");
  t.add(boolean, "logging_nan_inf_filter", true,
        "leave NaN and infinity out of the loss in log lines; metrics.jsonl has every loss");
  t.add(path, "logging_dir", {}, "directory of TensorBoard files; none: output_dir/runs");
  t.add(json, "include_num_input_tokens_seen", "no",
        "write num_input_tokens_seen to metrics and TensorBoard: no, all, non_padding (no padding "
        "exists)")
      .shown_as("text or true");
  t.add(boolean, "include_tokens_per_second", false, "log tokens per second")
      .hint("no effect: metrics.jsonl always has this value");
  for (char const* name : {"run_name", "trackio_space_id", "trackio_bucket_id"})
    t.add(string, name, {}, "name for a logging service")
        .hint("no effect: Tessera reports to no service");
  t.add(json, "trackio_static_space_id", {}, "name for a logging service")
      .shown_as("text or false")
      .hint("no effect: Tessera reports to no service");
  t.add(string, "project", "huggingface", "name for a logging service")
      .hint("no effect: Tessera reports to no service");
  t.add(boolean, "prediction_loss_only", false, "evaluate only the loss")
      .hint("no effect: this is always the case");
  t.add(integer, "eval_accumulation_steps", {}, "evaluation steps before results move to the host")
      .hint("no effect: evaluation keeps only sums");
  t.add(boolean, "eval_do_concat_batches", true, "concatenate the results of batches")
      .hint("no effect: evaluation keeps only sums");
  t.add(boolean, "eval_use_gather_object", false, "gather Python objects")
      .hint("no effect: evaluation keeps only sums");
  t.add(list, "include_for_metrics", ConfigTree::Array{}, "extra inputs of the metrics function")
      .hint("no effect: the metrics need no other inputs");
  t.add(boolean, "include_inputs_for_metrics", false, "extra inputs of the metrics function")
      .hint("no effect: the metrics need no other inputs");
  t.add(boolean, "batch_eval_metrics", false, "compute metrics batch by batch")
      .hint("no effect: this is always the case");
  t.add(boolean, "skip_memory_metrics", true, "omit memory metrics").hint(no_effect);
}

void add_save(OptionTable& t) {
  t.group("Checkpoints");
  t.add(choice, "save_strategy", "steps", "when to write checkpoints")
      .one_of({"no", "steps", "epoch", "best"});
  t.add(real, "save_steps", 500.0, "steps between checkpoints; below 1: a fraction of all steps")
      .above(0)
      .unit("steps");
  t.add(integer, "save_total_limit", {}, "keep only the newest N checkpoints; none: all")
      .at_least(1)
      .unit("checkpoints");
  t.add(choice, "async_save", "auto",
        "write checkpoints in the background; auto: if host memory has room for a snapshot of the "
        "state (Tessera's own)")
      .one_of({"auto", "on", "off"});
  t.add(json, "checkpoint_ranks_per_file", 1,
        "ranks per shard file; node: all ranks of a node (Tessera's own)")
      .shown_as("number or node");
  t.add(integer, "max_save_failures", 3,
        "consecutive failed saves after which training still continues (Tessera's own)")
      .at_least(0)
      .unit("saves");
  t.add(boolean, "save_only_model", false,
        "regular checkpoints contain only a Hugging Face model; a run cannot resume from them");
  t.add(boolean, "save_on_each_node", false, "save to the local disk of every node")
      .refuse("all ranks write to one output_dir on a shared file system");
  t.add(boolean, "save_safetensors", true, "save safetensors files")
      .refuse("the model is always saved as safetensors; leave it out");
  t.add(boolean, "enable_jit_checkpoint", false, "save a checkpoint on a stop signal")
      .hint(
          "no effect: a stop signal always saves a checkpoint and ends the run with exit code 75");
  t.add(boolean, "load_best_model_at_end", false,
        "export and evaluate the checkpoint with the best metric; it is never removed");
  t.add(string, "metric_for_best_model", {},
        "loss, perplexity or accuracy; none: loss where a best checkpoint is wanted");
  t.add(boolean, "greater_is_better", {},
        "whether a higher metric is better; none: true for accuracy, else false");
  t.add(boolean, "restore_callback_states_from_checkpoint", false, "restore Python callbacks")
      .hint("no effect: Tessera has no callbacks");
  t.add(boolean, "push_to_hub", false, "upload the model").refuse(no_hub);
  for (char const* name : {"hub_model_id", "hub_token", "hub_revision", "push_to_hub_model_id",
                           "push_to_hub_organization", "push_to_hub_token"})
    t.add(string, name, {}, "upload to the Hub").hint("no effect: nothing is uploaded");
  t.add(string, "hub_strategy", "every_save", "upload to the Hub")
      .hint("no effect: nothing is uploaded");
  t.add(boolean, "hub_always_push", false, "upload to the Hub")
      .hint("no effect: nothing is uploaded");
  t.add(boolean, "hub_private_repo", {}, "upload to the Hub")
      .hint("no effect: nothing is uploaded");
}

void add_communication(OptionTable& t) {
  t.add(choice, "collectives", "auto", "across nodes; auto: by size and links (Tessera's own)")
      .one_of({"auto", "flat", "two-level"});
  t.add(
       choice, "reproducible", "run",
       "same bits: run: with the same ranks; world: with any power of two of ranks (Tessera's own)")
      .one_of({"run", "world"});
  t.add(boolean, "reduce_once", false,
        "stages 2, 3: keep complete gradients and reduce them once per step, not per micro-step "
        "(Tessera's own)");
  t.add(
       real, "comm_timeout", 300.0,
       "timeout of every wait for other ranks; then the run ends with exit code 69 (Tessera's own)")
      .above(0)
      .unit("seconds");
  t.add(real, "node_timeout", 30.0,
        "heartbeat timeout of a node; then the run ends with exit code 69; 0: only comm_timeout "
        "(Tessera's own)")
      .at_least(0)
      .unit("seconds");
  t.add(integer, "ddp_timeout", 1800,
        "timeout of every wait for other ranks, if comm_timeout is not given")
      .above(0)
      .unit("seconds");
}

void add_machine(OptionTable& t) {
  t.group("Machine");
  t.add(choice, "device", "auto",
        "auto: GPUs if the build and every node have them, else the host; cuda: an error without "
        "GPUs (Tessera's own)")
      .one_of({"auto", "cuda", "cpu"});
  t.add(choice, "device_attention", "auto",
        "attention on a GPU; auto: cuDNN in fp16 and bf16 (with its own dropout masks), else "
        "portable (Tessera's own)")
      .one_of({"auto", "cudnn", "portable"});
  t.add(choice, "device_gelu", "auto",
        "gelu_new on a GPU: fused into cuBLASLt matrix products or separate; auto: fused from "
        "Hopper on (Tessera's own)")
      .one_of({"auto", "fused", "separate"});
  t.add(boolean, "cuda_graphs", false,
        "launch each block's kernels as one CUDA graph, replayed if operands repeat; for small "
        "models (Tessera's own)");
  t.add(integer, "communication_multiprocessors", 0,
        "of a GPU: at most for NCCL, which matrix products leave free; 0: NCCL's choice "
        "(Tessera's own)")
      .at_least(0);
  t.add(
       choice, "nccl_cta_policy", "default",
       "multiprocessors of a GPU that NCCL takes; zero: none where copy engines can gather weights "
       "(Tessera's own)")
      .one_of({"default", "efficiency", "zero"});
  t.add(boolean, "deterministic", true,
        "bit-for-bit reproducible runs; false: allow faster GPU algorithms that sum in any order "
        "(Tessera's own)");
  t.add(boolean, "use_cpu", false, "the same as --device cpu").alias("no_cuda");
  t.add(string, "device_memory", {},
        "most device memory of a rank: 2GiB; without a GPU a device of this size is simulated "
        "(Tessera's own)");
  t.add(string, "host_memory", {}, "most host memory of a rank: 8GiB (Tessera's own)");
  t.add(integer, "delayed_update_from_step", 0,
        "from then on a CPU update overlaps the next step, which changes results; 0: never "
        "(Tessera's own)")
      .at_least(0)
      .unit("steps");
  t.add(integer, "threads", {},
        "OpenMP threads per rank; none: the cores that the launcher assigned (Tessera's own)")
      .at_least(1)
      .unit("threads");
  t.add(
       real, "time_limit", 0.0,
       "save and end with exit code 75 before this time has passed; 0: the time limit of the Slurm "
       "job (Tessera's own)")
      .at_least(0)
      .unit("minutes");
  t.add(
      boolean, "auto_tune", false,
      "measure choices first, then train with the fastest; without do_train only search (Tessera's "
      "own)");
  t.add(real, "tune_minutes", 5.0, "most time of the search of auto_tune (Tessera's own)")
      .above(0)
      .unit("minutes");
  add_communication(t);
}

void add_generation(OptionTable& t) {
  t.group("Generation (Tessera's own)");
  t.add(string, "prompt", "", "text that the model continues, printed while it grows");
  t.add(path, "prompt_file", {},
        "prompts, one per line, or \"prompt\" of each line of a .jsonl file; prints a line of JSON "
        "for each");
  t.add(integer, "max_new_tokens", 50, "tokens to generate").at_least(1).unit("tokens");
  t.add(real, "temperature", 1.0, "sampling temperature; 0: greedy").at_least(0);
  t.add(integer, "top_k", 50, "sample from the k most likely tokens; 0 disables top-k")
      .at_least(0)
      .unit("tokens");
  t.add(real, "top_p", 1.0, "sample from the most likely tokens that together reach p; 1: all")
      .at_least(0)
      .at_most(1);
  t.add(real, "min_p", 0.0, "sample from tokens with at least p of the largest probability; 0: all")
      .at_least(0)
      .at_most(1);
  t.add(real, "repetition_penalty", 1.0,
        "above 1: tokens of the text so far become less likely; 1: off")
      .above(0);
  t.add(list, "stop_strings", ConfigTree::Array{}, "a text ends before the first of these");
}

OptionTable build() {
  OptionTable t;
  add_model(t);
  add_adapters(t);
  detail::add_data_options(t);
  add_work(t);
  add_length(t);
  detail::add_optimizer_options(t);
  add_precision(t);
  add_log(t);
  add_reporting(t);
  add_save(t);
  add_machine(t);
  detail::add_launcher_options(t);
  add_generation(t);
  return t;
}

}  // namespace

OptionTable const& argument_table() {
  static OptionTable const table = build();
  return table;
}

}  // namespace tessera::config
