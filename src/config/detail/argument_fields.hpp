#pragma once
/// The fields of TrainingArguments by the names of their options.

#include "tessera/config/arguments.hpp"

namespace tessera::config::detail {

template <class Visitor, class Arguments>
void visit_inputs(Visitor&& visit, Arguments& a) {
  visit("model_name_or_path", a.model_name_or_path);
  visit("config_name", a.config_name);
  visit("tokenizer_name", a.tokenizer_name);
  visit("config_overrides", a.config_overrides);
  visit("model_type", a.model_type);
  visit("dtype", a.dtype);
  visit("use_peft_lora", a.use_peft_lora);
  visit("lora_r", a.lora_r);
  visit("lora_alpha", a.lora_alpha);
  visit("lora_dropout", a.lora_dropout);
  visit("lora_target_modules", a.lora_target_modules);
  visit("use_rslora", a.use_rslora);
  visit("adapter", a.adapter);
  visit("frozen_parameters", a.frozen_parameters);
  visit("train_file", a.train_file);
  visit("validation_file", a.validation_file);
  visit("test_file", a.test_file);
  visit("validation_split_percentage", a.validation_split_percentage);
  visit("block_size", a.block_size);
  visit("max_train_samples", a.max_train_samples);
  visit("max_eval_samples", a.max_eval_samples);
  visit("max_predict_samples", a.max_predict_samples);
  visit("keep_linebreaks", a.keep_linebreaks);
  visit("data_mixture", a.data_mixture);
  visit("skip_broken_records", a.skip_broken_records);
  visit("append_eos", a.append_eos);
  visit("reset_attention_mask", a.reset_attention_mask);
  visit("reset_position_ids", a.reset_position_ids);
  visit("eod_mask_loss", a.eod_mask_loss);
  visit("preprocessing_num_workers", a.preprocessing_num_workers);
  visit("dataloader_drop_last", a.dataloader_drop_last);
  visit("dataloader_num_workers", a.dataloader_num_workers);
  visit("dataloader_prefetch_factor", a.dataloader_prefetch_factor);
  visit("train_sampling_strategy", a.train_sampling_strategy);
  visit("group_by_length", a.group_by_length);
  visit("output_dir", a.output_dir);
  visit("overwrite_output_dir", a.overwrite_output_dir);
  visit("do_train", a.do_train);
  visit("do_eval", a.do_eval);
  visit("do_predict", a.do_predict);
  visit("do_generate", a.do_generate);
  visit("resume_from_checkpoint", a.resume_from_checkpoint);
  visit("allow_changed_data", a.allow_changed_data);
  visit("print_config", a.print_config);
  visit("help", a.help);
  visit("version", a.version);
}

template <class Visitor, class Arguments>
void visit_training(Visitor&& visit, Arguments& a) {
  visit("per_device_train_batch_size", a.per_device_train_batch_size);
  visit("per_device_eval_batch_size", a.per_device_eval_batch_size);
  visit("gradient_accumulation_steps", a.gradient_accumulation_steps);
  visit("auto_find_batch_size", a.auto_find_batch_size);
  visit("num_train_epochs", a.num_train_epochs);
  visit("max_steps", a.max_steps);
  visit("seed", a.seed);
  visit("data_seed", a.data_seed);
  visit("learning_rate", a.learning_rate);
  visit("weight_decay", a.weight_decay);
  visit("adam_beta1", a.adam_beta1);
  visit("adam_beta2", a.adam_beta2);
  visit("adam_epsilon", a.adam_epsilon);
  visit("max_grad_norm", a.max_grad_norm);
  visit("optim", a.optim);
  visit("lr_scheduler_type", a.lr_scheduler_type);
  visit("lr_scheduler_kwargs", a.lr_scheduler_kwargs);
  visit("warmup_steps", a.warmup_steps);
  visit("fp16", a.fp16);
  visit("bf16", a.bf16);
  visit("fp16_full_eval", a.fp16_full_eval);
  visit("bf16_full_eval", a.bf16_full_eval);
  visit("master_weights", a.master_weights);
  visit("label_smoothing_factor", a.label_smoothing_factor);
  visit("neftune_noise_alpha", a.neftune_noise_alpha);
  visit("gradient_checkpointing", a.gradient_checkpointing);
  visit("recompute", a.recompute);
}

template <class Visitor, class Arguments>
void visit_evaluation_and_saves(Visitor&& visit, Arguments& a) {
  visit("eval_on_start", a.eval_on_start);
  visit("eval_strategy", a.eval_strategy);
  visit("eval_steps", a.eval_steps);
  visit("eval_delay", a.eval_delay);
  visit("load_best_model_at_end", a.load_best_model_at_end);
  visit("metric_for_best_model", a.metric_for_best_model);
  visit("greater_is_better", a.greater_is_better);
  visit("early_stopping_patience", a.early_stopping_patience);
  visit("early_stopping_threshold", a.early_stopping_threshold);
  visit("save_strategy", a.save_strategy);
  visit("save_steps", a.save_steps);
  visit("save_total_limit", a.save_total_limit);
  visit("save_only_model", a.save_only_model);
  visit("async_save", a.async_save);
  visit("checkpoint_ranks_per_file", a.checkpoint_ranks_per_file);
  visit("max_save_failures", a.max_save_failures);
  visit("max_skipped_steps", a.max_skipped_steps);
}

template <class Visitor, class Arguments>
void visit_machine_and_generation(Visitor&& visit, Arguments& a) {
  visit("use_cpu", a.use_cpu);
  visit("device_memory", a.device_memory);
  visit("delayed_update_from_step", a.delayed_update_from_step);
  visit("host_memory", a.host_memory);
  visit("deterministic", a.deterministic);
  visit("tf32", a.tf32);
  visit("fp8", a.fp8);
  visit("device_attention", a.device_attention);
  visit("device_gelu", a.device_gelu);
  visit("cuda_graphs", a.cuda_graphs);
  visit("communication_multiprocessors", a.communication_multiprocessors);
  visit("nccl_cta_policy", a.nccl_cta_policy);
  visit("threads", a.threads);
  visit("time_limit", a.time_limit_minutes);
  visit("collectives", a.collectives);
  visit("reproducible", a.reproducible);
  visit("reduce_once", a.reduce_once);
  visit("auto_tune", a.auto_tune);
  visit("tune_minutes", a.tune_minutes);
  visit("comm_timeout", a.comm_timeout_seconds);
  visit("node_timeout", a.node_timeout_seconds);
  visit("prompt", a.prompt);
  visit("max_new_tokens", a.max_new_tokens);
  visit("temperature", a.temperature);
  visit("top_k", a.top_k);
  visit("prompt_file", a.prompt_file);
  visit("top_p", a.top_p);
  visit("min_p", a.min_p);
  visit("repetition_penalty", a.repetition_penalty);
  visit("stop_strings", a.stop_strings);
}

template <class Visitor, class Arguments>
void visit_log(Visitor&& visit, Arguments& a) {
  visit("logging_strategy", a.logging_strategy);
  visit("logging_steps", a.logging_steps);
  visit("logging_dir", a.logging_dir);
  visit("logging_nan_inf_filter", a.logging_nan_inf_filter);
  visit("include_num_input_tokens_seen", a.include_num_input_tokens_seen);
  visit("log_on_each_node", a.log_on_each_node);
  visit("log_level", a.log_level);
  visit("log_level_replica", a.log_level_replica);
  visit("log_dir", a.log_dir);
}

/// Calls visit(name, field) for every option with a field of its own.
template <class Visitor, class Arguments>
void visit_fields(Visitor&& visit, Arguments& a) {
  visit_inputs(visit, a);
  visit_training(visit, a);
  visit_evaluation_and_saves(visit, a);
  visit_machine_and_generation(visit, a);
  visit_log(visit, a);
}

}  // namespace tessera::config::detail
