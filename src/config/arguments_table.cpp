#include "tessera/config/option_table.hpp"

#include <algorithm>
#include <string>

#include "detail/option_rows.hpp"

namespace tessera::config {
namespace {

using enum OptionType;
using enum Resume;
using detail::ArgumentRows;
using Arguments = TrainingArguments;

char const* const no_effect = "no effect";
char const* const no_download = "no effect: nothing is downloaded from the Hub";
char const* const no_hub =
    "nothing is uploaded to the Hub; output_dir is a Hugging Face directory that can be uploaded "
    "afterwards";
char const* const use_metrics =
    "nothing is sent to a service; use tensorboard, wandb or mlflow, or metrics.jsonl in "
    "output_dir";

void add_model(ArgumentRows& t) {
  t.group("Model", described);
  t.add(&Arguments::model_name_or_path, "model_name_or_path",
        "Hugging Face model directory to start from (config.json, safetensors)");
  t.add(&Arguments::config_name, "config_name",
        "directory or config.json of a model to train from random weights");
  t.add(&Arguments::model_type, "model_type",
        "model family to train from random weights with its default sizes, such as gpt2 or llama");
  t.add(&Arguments::config_overrides, "config_overrides",
        "changes to the sizes of model_type: n_embd=64,n_layer=2");
  t.add(&Arguments::tokenizer_name, "tokenizer_name",
        "directory with tokenizer.json, if not model_name_or_path");
  t.add(&Arguments::dtype, "dtype",
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

void add_adapters(ArgumentRows& t) {
  t.group("Adapters and frozen parameters");
  t.add(&Arguments::use_peft_lora, "use_peft_lora",
        "LoRA: train only low-rank adapters of linear layers")
      .resume(training)
      .alias("use_peft");
  t.add(&Arguments::lora_r, "lora_r", "rank of the adapters")
      .resume(training)
      .at_least(1)
      .alias("lora_rank");
  t.add(&Arguments::lora_alpha, "lora_alpha", "adapters are scaled by lora_alpha / lora_r")
      .resume(training)
      .above(0);
  t.add(&Arguments::lora_dropout, "lora_dropout", "dropout of the adapters' inputs")
      .resume(training)
      .between(0, 0.999);
  t.add(&Arguments::lora_target_modules, "lora_target_modules",
        "layers to adapt: ends of names, all-linear, or a regular expression; none: PEFT's default")
      .resume(training)
      .alias("lora_target");
  t.add(&Arguments::use_rslora, "use_rslora", "scale adapters by lora_alpha / sqrt(lora_r)")
      .resume(training);
  t.add(&Arguments::use_dora, "use_dora",
        "DoRA: train a magnitude of each output next to the adapters")
      .resume(training);
  auto& init = t.add(&Arguments::init_lora_weights, "init_lora_weights",
                     "initial adapters: true: A uniform; gaussian: A normal; false: B not zero")
                   .one_of({"true", "false", "gaussian"})
                   .spelled({"True"}, "true")
                   .spelled({"False"}, "false")
                   .resume(training);
  for (char const* name :
       {"pissa", "olora", "loftq", "corda", "eva", "orthogonal", "mica", "lora_ga"})
    init.except(name,
                "only forms that leave the base as it is and need no data are computed; use "
                "true or gaussian");
  t.add(&Arguments::lora_modules_to_save, "lora_modules_to_save",
        "modules that train in full and are stored with the adapters: ends of names")
      .resume(training);
  t.add(&Arguments::adapter, "adapter",
        "PEFT directory whose adapters start the run (Tessera's own)")
      .resume(described);
  t.add(&Arguments::load_in_4bit, "load_in_4bit",
        "QLoRA: keep the frozen matrices of blocks in 4 bits, as bitsandbytes does")
      .resume(training);
  t.add(&Arguments::load_in_8bit, "load_in_8bit",
        "keep the frozen matrices of blocks in 8 bits with a scale per row")
      .resume(training);
  t.add(&Arguments::bnb_4bit_quant_type, "bnb_4bit_quant_type", "format of 4 bits")
      .one_of({"nf4"})
      .except("fp4", "it loses more than nf4 at the same size; use nf4")
      .resume(training);
  t.add(&Arguments::bnb_4bit_use_double_quant, "bnb_4bit_use_double_quant",
        "keep the scales of nf4 in 8 bits")
      .alias("use_bnb_nested_quant")
      .resume(training);
  t.add(&Arguments::bnb_4bit_compute_dtype, "bnb_4bit_compute_dtype",
        "dtype of products with the matrices; none: that of the other products")
      .one_of({"float32", "bfloat16", "float16"})
      .resume(training);
  t.add(string, "bnb_4bit_quant_storage", "uint8", "dtype that holds the codes in PyTorch")
      .hint("no effect: codes are bytes, which every stage shards");
  t.add(&Arguments::frozen_parameters, "frozen_parameters",
        "regular expression of the complete names of parameters that do not train (Tessera's own)")
      .resume(training);
}

void add_work(ArgumentRows& t) {
  t.group("What to do", described);
  t.add(&Arguments::output_dir, "output_dir",
        "run directory: status, metrics, checkpoints, the trained model");
  t.add(&Arguments::overwrite_output_dir, "overwrite_output_dir",
        "start fresh over a completed run; an unfinished run resumes unless "
        "resume_from_checkpoint is never");
  t.add(&Arguments::do_train, "do_train", "train");
  t.add(&Arguments::do_eval, "do_eval",
        "evaluate: loss, perplexity and accuracy; on when eval_strategy is not no");
  t.add(&Arguments::do_predict, "do_predict", "evaluate test_file: loss, perplexity and accuracy");
  t.add(&Arguments::do_generate, "do_generate",
        "continue prompts with the trained weights (Tessera's own)");
  t.add(&Arguments::resume_from_checkpoint, "resume_from_checkpoint",
        "checkpoint to resume from; auto or none: the newest complete one of output_dir, if any; "
        "true: there must be one")
      .of_type(json)
      .shown_as("auto, true, false, never, step or path");
  t.add(&Arguments::allow_changed_data, "allow_changed_data",
        "resume although text, tokenizer, block size or order of the samples changed (Tessera's "
        "own)");
  t.add(json, "deepspeed", {}, "DeepSpeed configuration file; in a run file also the object itself")
      .shown_as("path or JSON object");
  t.add(path, "accelerate_config", {},
        "configuration file of Accelerate (YAML or JSON): precision, DeepSpeed, FSDP");
  t.add(&Arguments::print_config, "print_config",
        "print every resolved value with its origin and exit (Tessera's own)");
  t.add(&Arguments::help, "help", "print this text, or explain one option, and exit")
      .of_type(json)
      .shown_as("option or true")
      .alias("h");
  t.add(&Arguments::version, "version", "print the version and exit");
}

void add_length(ArgumentRows& t) {
  t.group("Length and batches", described);
  t.add(&Arguments::per_device_train_batch_size, "per_device_train_batch_size",
        "sequences per rank and micro-step")
      .at_least(1, "sequences")
      .alias("per_gpu_train_batch_size");
  t.add(&Arguments::per_device_eval_batch_size, "per_device_eval_batch_size",
        "sequences per rank and evaluation step")
      .at_least(1, "sequences")
      .alias("per_gpu_eval_batch_size")
      .resume(reported);
  t.add(&Arguments::gradient_accumulation_steps, "gradient_accumulation_steps",
        "micro-steps per optimizer step")
      .at_least(1, "micro-steps");
  t.add(&Arguments::num_train_epochs, "num_train_epochs", "passes over the training data")
      .at_least(0, "epochs");
  t.add(&Arguments::max_steps, "max_steps",
        "optimizer steps; a positive value overrides num_train_epochs")
      .at_least(-1, "steps");
  t.add(&Arguments::seed, "seed", "seed of random weights, dropout and data order")
      .resume(training)
      .at_least(0);
  t.add(&Arguments::data_seed, "data_seed", "seed of the data order only; none: seed").at_least(0);
  t.add(&Arguments::auto_find_batch_size, "auto_find_batch_size",
        "halve per_device_train_batch_size until the activations fit into memory")
      .resume(reported);
  t.add(boolean, "full_determinism", false,
        "bit-for-bit reproducible runs; the default unless deterministic is false");
}

void add_precision(ArgumentRows& t) {
  t.group("Precision and memory", described);
  t.add(&Arguments::fp16, "fp16",
        "float16 products with loss scaling; with DeepSpeed or FSDP also float16 weights");
  t.add(&Arguments::bf16, "bf16",
        "bfloat16 products (autocast); with DeepSpeed or FSDP also bfloat16 weights");
  t.add(&Arguments::master_weights, "master_weights",
        "initial fp32 master weights of 16-bit weights: file: as stored; rounded: as the weights; "
        "auto: rounded with DeepSpeed")
      .one_of({"auto", "file", "rounded"});
  t.add(&Arguments::max_skipped_steps, "max_skipped_steps",
        "consecutive skipped steps after which training continues; none: what the loss scale can "
        "cure, else 10 (Tessera's own)")
      .at_least(0, "steps")
      .resume(reported);
  t.add(&Arguments::gradient_checkpointing, "gradient_checkpointing",
        "activation checkpointing: keep only each block's input and recompute the rest in backward")
      .alias("activation_checkpointing")
      .resume(reported);
  t.add(&Arguments::recompute, "recompute",
        "what backward computes again: none; light: norms and activation functions; block: "
        "gradient_checkpointing (Tessera's own)")
      .resume(reported);
  t.add(json, "gradient_checkpointing_kwargs", {}, "arguments of gradient checkpointing")
      .shown_as("JSON object")
      .alias("activation_checkpointing_kwargs")
      .hint("no effect: every block is checkpointed");
  t.add(&Arguments::fp16_full_eval, "fp16_full_eval",
        "evaluate in float16 in a run without --do_train; in training an error unless --fp16");
  t.add(&Arguments::bf16_full_eval, "bf16_full_eval",
        "evaluate in bfloat16 in a run without --do_train; in training an error unless --bf16");
  t.add(&Arguments::tf32, "tf32",
        "compute fp32 matrix products in TF32 on a GPU's tensor cores; an error on the host")
      .resume(training);
  t.add(&Arguments::fp8, "fp8",
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

void add_log(ArgumentRows& t) {
  t.group("Log and evaluation");
  t.add(&Arguments::logging_steps, "logging_steps",
        "steps between log lines; below 1: a fraction of all steps")
      .above(0, "steps");
  t.add(boolean, "logging_first_step", false, "also log the first step")
      .hint("no effect: the first step is always logged");
  t.add(&Arguments::logging_strategy, "logging_strategy",
        "when to write log lines; metrics.jsonl always has every step")
      .one_of({"no", "steps", "epoch"});
  t.add(&Arguments::eval_strategy, "eval_strategy", "when to evaluate during training")
      .one_of({"no", "steps", "epoch"})
      .alias("evaluation_strategy");
  t.add(&Arguments::eval_steps, "eval_steps",
        "steps between evaluations; none: logging_steps; below 1: a fraction of all steps")
      .default_is({})
      .above(0, "steps");
  t.add(&Arguments::eval_on_start, "eval_on_start", "evaluate once before the first step");
  t.add(&Arguments::eval_delay, "eval_delay",
        "steps or epochs (as eval_strategy) before the first evaluation")
      .at_least(0);
  t.add(&Arguments::early_stopping_patience, "early_stopping_patience",
        "end training after N evaluations in a row without a better metric (Trainer's callback)")
      .at_least(1, "evaluations");
  t.add(&Arguments::early_stopping_threshold, "early_stopping_threshold",
        "smallest change of the metric that counts as better for early stopping")
      .at_least(0);
  auto const levels = {"debug", "info", "warning", "error", "critical", "passive"};
  t.add(&Arguments::log_level, "log_level", "log level of rank 0; passive: info")
      .default_is("passive")
      .spelled({"passive"}, "info")
      .spelled({"critical"}, "error")
      .one_of({levels.begin(), levels.end()});
  t.add(&Arguments::log_level_replica, "log_level_replica", "log level of the other ranks")
      .spelled({"passive"}, "warning")
      .spelled({"critical"}, "error")
      .one_of({levels.begin(), levels.end()});
  t.add(&Arguments::log_dir, "log_dir",
        "directory for one log file per rank (rank_00003.log) at level debug; none: no files "
        "(Tessera's own)");
}

void add_reporting(ArgumentRows& t) {
  auto& report = t.add(list, "report_to", ConfigTree::Array{"none"},
                       "also write files for tensorboard, wandb (an offline run for `wandb sync`), "
                       "mlflow (a file store), or all of them")
                     .one_of({"none", "all", "tensorboard", "wandb", "mlflow"});
  for (char const* name : {"comet_ml", "clearml", "dvclive", "swanlab", "trackio", "azure_ml",
                           "neptune", "flyte", "codecarbon"})
    report.except(name, use_metrics);
  t.add(boolean, "disable_tqdm", {}, "no progress bar")
      .hint("no effect: Tessera prints no progress bar to a batch log");
  t.add(&Arguments::log_on_each_node, "log_on_each_node",
        "the first rank of each node logs at log_level; false: only rank 0");
  t.add(&Arguments::logging_nan_inf_filter, "logging_nan_inf_filter",
        "leave NaN and infinity out of the loss in log lines; metrics.jsonl has every loss");
  t.add(&Arguments::logging_dir, "logging_dir",
        "directory of TensorBoard files; none: output_dir/runs");
  t.add(&Arguments::include_num_input_tokens_seen, "include_num_input_tokens_seen",
        "write num_input_tokens_seen to metrics and TensorBoard: no, all, non_padding (no padding "
        "exists)")
      .of_type(json)
      .shown_as("text or true");
  t.add(boolean, "include_tokens_per_second", false, "log tokens per second")
      .hint("no effect: metrics.jsonl always has this value");
  t.add(&Arguments::run_name, "run_name",
        "name of the run in W&B and MLflow; none: the last part of output_dir");
  for (char const* name : {"trackio_space_id", "trackio_bucket_id"})
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

void add_save(ArgumentRows& t) {
  t.group("Checkpoints");
  t.add(&Arguments::save_strategy, "save_strategy", "when to write checkpoints");
  t.add(&Arguments::save_steps, "save_steps",
        "steps between checkpoints; below 1: a fraction of all steps")
      .above(0, "steps");
  t.add(&Arguments::save_total_limit, "save_total_limit",
        "keep only the newest N checkpoints; none: all")
      .at_least(1, "checkpoints");
  t.add(&Arguments::memory_save_steps, "memory_save_steps",
        "steps between checkpoints in memory under tessera run; auto: by 1 % of the time; 0: none "
        "(Tessera's own)")
      .of_type(json)
      .shown_as("number or auto");
  t.add(&Arguments::async_save, "async_save",
        "write checkpoints in the background; auto: if host memory has room for a snapshot of the "
        "state (Tessera's own)");
  t.add(&Arguments::checkpoint_ranks_per_file, "checkpoint_ranks_per_file",
        "ranks per shard file; node: all ranks of a node (Tessera's own)")
      .of_type(json)
      .shown_as("number or node");
  t.add(&Arguments::max_save_failures, "max_save_failures",
        "consecutive failed saves after which training still continues (Tessera's own)")
      .at_least(0, "saves");
  t.add(&Arguments::save_only_model, "save_only_model",
        "regular checkpoints contain only a Hugging Face model; a run cannot resume from them");
  t.add(boolean, "save_on_each_node", false, "save to the local disk of every node")
      .refuse("all ranks write to one output_dir on a shared file system");
  t.add(boolean, "save_safetensors", true, "save safetensors files")
      .refuse("the model is always saved as safetensors; leave it out");
  t.add(boolean, "enable_jit_checkpoint", false, "save a checkpoint on a stop signal")
      .hint(
          "no effect: a stop signal always saves a checkpoint and ends the run with exit code 75");
  t.add(&Arguments::load_best_model_at_end, "load_best_model_at_end",
        "export and evaluate the checkpoint with the best metric; it is never removed");
  t.add(&Arguments::metric_for_best_model, "metric_for_best_model",
        "loss, perplexity or accuracy; none: loss where a best checkpoint is wanted");
  t.add(&Arguments::greater_is_better, "greater_is_better",
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

void add_communication(ArgumentRows& t) {
  t.add(&Arguments::collectives, "collectives",
        "across nodes; auto: by size and links (Tessera's own)")
      .one_of({"auto", "flat", "two-level"});
  t.add(
       &Arguments::reproducible, "reproducible",
       "same bits: run: with the same ranks; world: with any power of two of ranks (Tessera's own)")
      .resume(training);
  t.add(&Arguments::reduce_once, "reduce_once",
        "stages 2, 3: keep complete gradients and reduce them once per step, not per micro-step "
        "(Tessera's own)");
  t.add(
       &Arguments::comm_timeout_seconds, "comm_timeout",
       "timeout of every wait for other ranks; then the run ends with exit code 69 (Tessera's own)")
      .above(0, "seconds");
  t.add(&Arguments::node_timeout_seconds, "node_timeout",
        "heartbeat timeout of a node; then the run ends with exit code 69; 0: only comm_timeout "
        "(Tessera's own)")
      .at_least(0, "seconds");
  t.add(&Arguments::verify_steps, "verify_steps",
        "steps between verifications: another rank computes each rank's results again; 0: never "
        "(Tessera's own)")
      .at_least(0, "steps");
  t.add(&Arguments::on_corruption, "on_corruption",
        "stop: end with 69; exclude: also name the node for tessera run; warn: repeat the step "
        "(Tessera's own)");
  t.add(integer, "ddp_timeout", 1800,
        "timeout of every wait for other ranks, if comm_timeout is not given")
      .above(0, "seconds");
}

void add_machine(ArgumentRows& t) {
  t.group("Machine");
  t.add(choice, "device", "auto",
        "auto: GPUs if the build and every node have them, else the host; gpu (or cuda): an error "
        "without "
        "GPUs (Tessera's own)")
      .one_of({"auto", "gpu", "cpu", "cuda"});
  t.add(&Arguments::device_attention, "device_attention",
        "attention on a GPU; auto: cuDNN in fp16 and bf16 (with its own dropout masks), else "
        "portable (Tessera's own)")
      .resume(attention_dropout);
  t.add(&Arguments::device_gelu, "device_gelu",
        "gelu_new on a GPU: fused into cuBLASLt matrix products or separate; auto: fused from "
        "Hopper on (Tessera's own)");
  t.add(&Arguments::device_product_algorithms, "device_product_algorithms",
        "file of the fastest cuBLASLt algorithms of a GPU; missing shapes are timed and added "
        "(Tessera's own)");
  t.add(&Arguments::device_graphs, "device_graphs",
        "launch each block's kernels as one graph of the device, replayed if operands repeat; "
        "for small models (Tessera's own)")
      .alias("cuda_graphs");
  t.add(&Arguments::communication_multiprocessors, "communication_multiprocessors",
        "of a GPU: at most for NCCL, which matrix products leave free; 0: NCCL's choice "
        "(Tessera's own)")
      .at_least(0);
  t.add(
       &Arguments::nccl_cta_policy, "nccl_cta_policy",
       "multiprocessors of a GPU that NCCL takes; zero: none where copy engines can gather weights "
       "(Tessera's own)")
      .one_of({"default", "efficiency", "zero"});
  t.add(&Arguments::deterministic, "deterministic",
        "bit-for-bit reproducible runs; false: allow faster GPU algorithms that sum in any order "
        "(Tessera's own)");
  t.add(&Arguments::use_cpu, "use_cpu", "the same as --device cpu").alias("no_cuda");
  t.add(&Arguments::device_memory, "device_memory",
        "most device memory of a rank: 2GiB; without a GPU a device of this size is simulated "
        "(Tessera's own)");
  t.add(&Arguments::host_memory, "host_memory", "most host memory of a rank: 8GiB (Tessera's own)");
  t.add(&Arguments::delayed_update_from_step, "delayed_update_from_step",
        "from then on a CPU update overlaps the next step, which changes results; 0: never "
        "(Tessera's own)")
      .resume(training)
      .at_least(0, "steps");
  t.add(&Arguments::threads, "threads",
        "OpenMP threads per rank; none: the cores that the launcher assigned (Tessera's own)")
      .at_least(1, "threads");
  t.add(
       &Arguments::time_limit_minutes, "time_limit",
       "save and end with exit code 75 before this time has passed; 0: the time limit of the Slurm "
       "job (Tessera's own)")
      .resume(described)
      .at_least(0, "minutes");
  t.add(
      &Arguments::auto_tune, "auto_tune",
      "measure choices first, then train with the fastest; without do_train only search (Tessera's "
      "own)");
  t.add(&Arguments::tune_minutes, "tune_minutes",
        "most time of the search of auto_tune (Tessera's own)")
      .above(0, "minutes");
  add_communication(t);
}

void add_generation(ArgumentRows& t) {
  t.group("Generation (Tessera's own)", described);
  t.add(&Arguments::prompt, "prompt", "text that the model continues, printed while it grows");
  t.add(&Arguments::prompt_file, "prompt_file",
        "prompts, one per line, or \"prompt\" of each line of a .jsonl file; prints a line of JSON "
        "for each");
  t.add(&Arguments::eval_prompts, "eval_prompts",
        "prompts as in prompt_file, which every evaluation continues: in the log, metrics.jsonl, "
        "TensorBoard, W&B and MLflow");
  t.add(&Arguments::max_new_tokens, "max_new_tokens", "tokens to generate").at_least(1, "tokens");
  t.add(&Arguments::temperature, "temperature", "sampling temperature; 0: greedy").at_least(0);
  t.add(&Arguments::top_k, "top_k", "sample from the k most likely tokens; 0 disables top-k")
      .at_least(0, "tokens");
  t.add(&Arguments::top_p, "top_p",
        "sample from the most likely tokens that together reach p; 1: all")
      .between(0, 1);
  t.add(&Arguments::min_p, "min_p",
        "sample from tokens with at least p of the largest probability; 0: all")
      .between(0, 1);
  t.add(&Arguments::repetition_penalty, "repetition_penalty",
        "above 1: tokens of the text so far become less likely; 1: off")
      .above(0);
  t.add(&Arguments::stop_strings, "stop_strings", "a text ends before the first of these");
}

ArgumentRows build() {
  ArgumentRows t;
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

detail::ArgumentRows const& detail::argument_rows() {
  static ArgumentRows const rows = build();
  return rows;
}

OptionTable const& argument_table() { return detail::argument_rows(); }

Resume resume_of_argument(std::string_view name) {
  auto const& rows = detail::argument_rows();
  auto const* option = rows.find(name);
  auto const field = std::ranges::find(rows.fields, name, &detail::ArgumentField::name);
  bool const is_resolved = field != rows.fields.end() && field->resolved;
  return is_resolved ? described : option ? option->resume_class : reported;
}

}  // namespace tessera::config
