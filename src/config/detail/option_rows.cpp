#include "detail/option_rows.hpp"

#include <algorithm>
#include <string>

#include "tessera/optim/optimizer.hpp"

namespace tessera::config::detail {
using enum OptionType;
using enum Resume;
using Arguments = TrainingArguments;

namespace {

char const* const local_files_only =
    "nothing is downloaded from the Hub; models, tokenizers and texts are local paths";
char const* const one_reader =
    "no effect: each rank reads its own samples from the memory-mapped tokenized text";

void add_texts(ArgumentRows& t) {
  t.group("Data", described);
  t.add(&Arguments::train_file, "train_file",
        "files to train on: .txt, .json, .jsonl, .csv, each also .gz or .zst, or .bin; several: "
        "a.txt,b.txt or 'data/*.jsonl'");
  t.add(&Arguments::validation_file, "validation_file",
        "files to evaluate on, named as train_file");
  t.add(&Arguments::test_file, "test_file", "files for do_predict, named as train_file");
  t.add(&Arguments::validation_split_percentage, "validation_split_percentage",
        "percentage of train_file used for evaluation when there is no validation_file")
      .between(0, 99, "%");
  t.add(&Arguments::block_size, "block_size",
        "sequence length; none: the tokenizer's limit, at most 1024")
      .at_least(2, "tokens");
  t.add(&Arguments::max_train_samples, "max_train_samples", "train on at most N sequences")
      .at_least(1, "sequences");
  t.add(&Arguments::max_eval_samples, "max_eval_samples", "evaluate on at most N sequences")
      .resume(training)
      .at_least(1, "sequences");
  t.add(&Arguments::max_predict_samples, "max_predict_samples",
        "predict at most N sequences of test_file")
      .at_least(1, "sequences");
  t.add(&Arguments::keep_linebreaks, "keep_linebreaks", "keep the line ends of text files");
  t.add(
       &Arguments::data_mixture, "data_mixture",
       "mix the data sets that commas separate in train_file by these weights: 0.7,0.3; none: they "
       "are one data set")
      .shown_as("weights");
  t.add(&Arguments::skip_broken_records, "skip_broken_records",
        "leave out JSON and CSV records that cannot be read, with a warning");
  t.add(&Arguments::append_eos, "append_eos", "append the tokenizer's eos_token to each record");
  t.add(&Arguments::reset_attention_mask, "reset_attention_mask",
        "attend within documents, up to the eos_token")
      .resume(training);
  t.add(&Arguments::reset_position_ids, "reset_position_ids",
        "positions count from 0 in each document")
      .resume(training);
  t.add(&Arguments::eod_mask_loss, "eod_mask_loss", "the token after an eos_token is not predicted")
      .resume(training);
}

void add_examples(ArgumentRows& t) {
  t.group("Supervised fine-tuning, as TRL's SFTTrainer", training);
  t.add(&Arguments::task, "task",
        "clm: text as run_clm.py; sft, dpo: examples, preferences as TRL's SFTTrainer, DPOTrainer "
        "(Tessera's own)");
  t.add(&Arguments::max_length, "max_length",
        "tokens of an example, truncated at the end, or of a packed row; 0: no limit")
      .at_least(0)
      .unit("tokens");
  t.add(&Arguments::dataset_text_field, "dataset_text_field", "column of plain text");
  t.add(&Arguments::record_template, "record_template",
        "alpaca: instruction, input and output become a prompt and a completion (Tessera's own)");
  t.add(&Arguments::chat_template_path, "chat_template_path",
        "Jinja file, or directory of a tokenizer, in place of the tokenizer's chat template");
  t.add(&Arguments::eos_token, "eos_token",
        "token that ends texts and completions; none: the tokenizer's");
  t.add(&Arguments::completion_only_loss, "completion_only_loss",
        "loss on the completion only; none: where there is a prompt and a completion");
  t.add(&Arguments::assistant_only_loss, "assistant_only_loss",
        "loss on the assistant's messages only");
  t.add(&Arguments::loss_type, "loss_type",
        "sft: nll (or chunked_nll), dft: times the token's probability; dpo: sigmoid (its "
        "default), hinge, ipo or robust");
  t.add(&Arguments::packing, "packing",
        "several examples share a row of max_length, each with its own attention and positions");
  t.add(&Arguments::packing_strategy, "packing_strategy",
        "bfd: best fit decreasing, cuts long examples; bfd_split (bfd-requeue): splits them; "
        "wrapped: no borders");
  t.add(&Arguments::eval_packing, "eval_packing", "pack the evaluation data; none: as packing");
  t.add(&Arguments::padding_free, "padding_free",
        "the examples of a micro-batch follow each other in one row without padding");
  t.add(&Arguments::pad_to_multiple_of, "pad_to_multiple_of",
        "rows are padded to a multiple of this")
      .at_least(1)
      .unit("tokens");
  t.add(string, "truncation_mode", "keep_start", "which part of a long example is kept")
      .refuse("examples are cut at the end, as keep_start does; leave it out");
  t.add(boolean, "shuffle_dataset", false, "shuffle the data set before it is packed")
      .refuse(
          "examples are packed in the order of the files; train_sampling_strategy shuffles "
          "the rows. Shuffle the file");
}

void add_preferences(ArgumentRows& t) {
  t.group("Preferences, as TRL's DPOTrainer", training);
  t.add(&Arguments::beta, "beta",
        "how strongly the model is kept near the reference model; of ipo its tau")
      .above(0);
  t.add(&Arguments::label_smoothing, "label_smoothing",
        "probability that chosen and rejected are swapped, with --loss_type robust")
      .at_least(0);
  t.add(&Arguments::ref_model_name_or_path, "ref_model_name_or_path",
        "directory of the reference model; none: the model before the training, without new "
        "adapters (Tessera's own)");
  t.add(&Arguments::precompute_ref_log_probs, "precompute_ref_log_probs",
        "compute the reference model's log-probabilities before the training and release it");
  t.add(boolean, "disable_dropout", true, "no dropout in the model and the reference model")
      .refuse("the training has no dropout with --task dpo; leave it out");
}

void add_loading(ArgumentRows& t) {
  t.add(&Arguments::dataloader_num_workers, "dataloader_num_workers",
        "threads of each rank that load samples ahead; 0: none")
      .between(0, 256)
      .resume(reported);
  t.add(&Arguments::dataloader_prefetch_factor, "dataloader_prefetch_factor",
        "micro-batches that each of these threads loads ahead (2)")
      .at_least(1)
      .resume(reported);
  t.add(&Arguments::dataloader_drop_last, "dataloader_drop_last",
        "drop the last incomplete batch of an epoch; otherwise it is filled with samples from the "
        "start of the epoch");
  t.add(&Arguments::train_sampling_strategy, "train_sampling_strategy",
        "order of the training sequences; random and group_by_length are random orders of Trainer, "
        "philox is Tessera's")
      .except("batch_rebalance", "all sequences have block_size tokens; use random");
  t.add(&Arguments::group_by_length, "group_by_length",
        "that strategy, as transformers 4 names it");
  t.add(boolean, "overwrite_cache", false, "tokenize the texts again")
      .hint("no effect: checksums of text, tokenizer and settings find every change");
  t.add(&Arguments::preprocessing_num_workers, "preprocessing_num_workers",
        "threads of rank 0 that tokenize; none: one per core; the sequences do not depend on it")
      .alias("dataset_num_proc")
      .at_least(1)
      .resume(reported);
}

void add_unused(ArgumentRows& t) {
  t.add(string, "dataset_name", {}, "data set on the Hub")
      .refuse(std::string(local_files_only) + ". Use --train_file");
  t.add(string, "dataset_config_name", {}, "configuration of the data set")
      .refuse(std::string(local_files_only) + ". Use --train_file");
  t.add(boolean, "streaming", false, "read the texts while training")
      .refuse("texts are tokenized once at the start; leave it out");
  t.add(string, "length_column_name", "length", "column with precomputed lengths")
      .hint("no effect");
  t.add(boolean, "dataloader_pin_memory", true, "pinned host memory")
      .hint("no effect: inputs of a GPU always pass through pinned host memory");
  t.add(boolean, "dataloader_persistent_workers", false,
        "keep the data loading processes between epochs")
      .hint(one_reader);
  t.add(string, "dataloader_multiprocessing_context", {},
        "start method of the data loading processes")
      .hint(one_reader);
  t.add(boolean, "dataloader_in_order", true, "deliver batches in order").hint(one_reader);
  t.add(boolean, "remove_unused_columns", true, "drop columns the model does not take")
      .hint("no effect: only the text column is read");
  t.add(list, "label_names", {}, "names of the labels")
      .hint("no effect: the labels are the next tokens");
  t.add(boolean, "ignore_data_skip", false, "start from the first sample after a resume")
      .refuse("a resume continues with the next sample; leave it out");
}

}  // namespace

void add_data_options(ArgumentRows& t) {
  add_texts(t);
  add_loading(t);
  add_unused(t);
  add_examples(t);
  add_preferences(t);
}

void add_launcher_options(ArgumentRows& t) {
  t.add(integer, "local_rank", -1, "local rank, passed by launchers")
      .hint("no effect: local ranks come from MPI");
  t.add(choice, "ddp_backend", {}, "communication library")
      .one_of({"mpi", "gloo", "nccl", "ccl", "xccl", "hccl"})
      .hint("no effect: NCCL where each rank has a GPU of its own, else MPI");
  char const* const own_buckets =
      "no effect: set reduce_bucket_size in the DeepSpeed configuration";
  t.add(integer, "ddp_bucket_cap_mb", {}, "gradient bucket size").hint(own_buckets);
  for (char const* name :
       {"ddp_find_unused_parameters", "ddp_broadcast_buffers", "ddp_static_graph"})
    t.add(boolean, name, {}, "option of PyTorch's DistributedDataParallel")
        .hint("no effect: every parameter has a gradient in every step");
  t.add(json, "fsdp", {},
        "FSDP's name of a ZeRO stage: full_shard (3), shard_grad_op (2), no_shard (0)")
      .shown_as("words or true");
  t.add(json, "fsdp_config", {}, "FSDP's options; each has an effect, a note or a refusal")
      .shown_as("path or JSON object");
  t.add(string, "sharded_ddp", {}, "sharding of FairScale")
      .refuse("use --deepspeed with zero_optimization.stage 2 or 3");
  t.add(json, "accelerator_config", {}, "Accelerate's configuration")
      .shown_as("path or JSON object")
      .refuse("leave it out; --deepspeed configures the engine");
  t.add(json, "parallelism_config", {}, "Accelerate's parallelism")
      .shown_as("JSON object")
      .refuse("only data parallelism is supported; leave it out");
  t.add(json, "debug", "", "PyTorch debug options")
      .shown_as("words")
      .refuse("use --log_level debug");
  for (char const* name : {"tpu_num_cores", "past_index"})
    t.add(integer, name, {}, "option of other hardware").hint("no effect");
  for (char const* name : {"xpu_backend", "mp_parameters", "ray_scope"})
    t.add(string, name, {}, "option of other hardware").hint("no effect");
  for (char const* name : {"tpu_metrics_debug", "use_mps_device"})
    t.add(boolean, name, {}, "option of other hardware").hint("no effect");
  for (char const* name : {"dispatch_batches", "split_batches"})
    t.add(boolean, name, {}, "how batches are distributed to ranks")
        .hint("no effect: each rank reads its own samples from the memory-mapped tokenized text");
}

namespace {

void add_values_and_schedule(ArgumentRows& t) {
  t.group("Optimizer and schedule", described);
  t.add(&Arguments::learning_rate, "learning_rate", "peak learning rate").at_least(0);
  t.add(&Arguments::weight_decay, "weight_decay",
        "weight decay of matrices (decoupled with AdamW, L2 with SGD); biases and norms do not "
        "decay")
      .at_least(0);
  t.add(&Arguments::adam_beta1, "adam_beta1", "AdamW beta1: decay rate of the first moment")
      .between(0, 1);
  t.add(&Arguments::adam_beta2, "adam_beta2", "AdamW beta2: decay rate of the second moment")
      .between(0, 1);
  t.add(&Arguments::adam_epsilon, "adam_epsilon", "AdamW epsilon").at_least(0);
  t.add(&Arguments::max_grad_norm, "max_grad_norm",
        "clip the global gradient norm to this value; 0: no clipping")
      .at_least(0);
  auto& schedule =
      t.add(&Arguments::lr_scheduler_type, "lr_scheduler_type", "learning-rate schedule")
          .one_of({"linear", "cosine", "cosine_with_restarts", "polynomial", "constant",
                   "constant_with_warmup", "inverse_sqrt", "cosine_with_min_lr",
                   "cosine_warmup_with_min_lr", "warmup_stable_decay"});
  for (char const* name : {"reduce_lr_on_plateau", "greedy"})
    schedule.except(
        name, "it depends on evaluation results; use a schedule that depends only on the step");
  t.add(&Arguments::warmup_steps, "warmup_steps",
        "steps of linear warm-up from 0; below 1: a fraction of all steps")
      .at_least(0, "steps");
  t.add(real, "warmup_ratio", 0.0, "fraction of all steps to warm up; warmup_steps overrides it")
      .between(0, 1);
  t.add(&Arguments::lr_scheduler_kwargs, "lr_scheduler_kwargs",
        "extra arguments of the schedule: {\"num_cycles\": 2}, {\"min_lr_rate\": 0.1}")
      .shown_as("JSON object");
}

void add_names(ArgumentRows& t) {
  auto& choice_of_optimizer =
      t.add(&Arguments::optim, "optim", "optimizer; names of one optimizer share a kernel")
          .of_type(choice);
  for (auto const& info : optim::optimizers())
    choice_of_optimizer.choices.insert(choice_of_optimizer.choices.end(),
                                       info.hugging_face_names.begin(),
                                       info.hugging_face_names.end());
  for (char const* name : {"adamw_anyprecision",
                           "adamw_torch_4bit",
                           "adamw_torch_8bit",
                           "adamw_bnb_8bit",
                           "adamw_8bit",
                           "paged_adamw_8bit",
                           "ademamix",
                           "ademamix_8bit",
                           "paged_ademamix_32bit",
                           "paged_ademamix_8bit",
                           "lion_8bit",
                           "paged_lion_8bit",
                           "rmsprop_bnb_8bit",
                           "lomo",
                           "adalomo",
                           "grokadamw",
                           "stable_adamw",
                           "schedule_free_radam",
                           "schedule_free_adamw",
                           "schedule_free_sgd"})
    if (std::ranges::find(choice_of_optimizer.choices, name) == choice_of_optimizer.choices.end())
      choice_of_optimizer.except(name, "it is not implemented; use adamw_torch");
  for (char const* name : {"galore_adamw", "galore_adamw_8bit", "galore_adafactor",
                           "galore_adamw_layerwise", "galore_adamw_8bit_layerwise",
                           "galore_adafactor_layerwise", "apollo_adamw", "apollo_adamw_layerwise"})
    choice_of_optimizer.except(
        name, "low-rank gradient projections are not implemented; use adamw_torch");
  t.add(string, "optim_args", {},
        "parameters of --optim in PyTorch's names: momentum=0.9,nesterov=true")
      .shown_as("name=value,...");
  t.add(json, "optim_target_modules", {}, "target modules of GaLore and APOLLO")
      .shown_as("words")
      .refuse("all parameters are trained; leave it out");
  t.add(boolean, "adafactor", false, "Adafactor instead of AdamW")
      .refuse("transformers removed it; use --optim adafactor");
  t.add(boolean, "average_tokens_across_devices", true,
        "average the loss over the tokens of all ranks")
      .refuse("the loss is always the mean over all tokens of the step; leave it out");
  t.add(&Arguments::label_smoothing_factor, "label_smoothing_factor",
        "share of the target that is spread over the vocabulary, also in evaluations")
      .resume(training)
      .between(0, 1);
  t.add(
       &Arguments::neftune_noise_alpha, "neftune_noise_alpha",
       "NEFTune: uniform noise up to alpha / sqrt(tokens * width) on embeddings in training; try 5")
      .resume(training)
      .default_is({})
      .at_least(0);
}

}  // namespace

void add_optimizer_options(ArgumentRows& t) {
  add_values_and_schedule(t);
  add_names(t);
}

}  // namespace tessera::config::detail
