#include "tessera/train/setup/resume_changes.hpp"

#include <algorithm>
#include <set>
#include <string_view>

#include "tessera/core/error.hpp"

namespace tessera::train {
namespace {

using Names = std::set<std::string_view>;

/// Resolved values that decide only how the work is distributed.
Names const distribution{"world_size",           "micro_batch_size",
                         "accumulation_steps",   "stage",
                         "overlap_comm",         "gather_16bit_weights",
                         "reduce_bucket_size",   "allgather_bucket_size",
                         "prefetch_bucket_size", "param_persistence_threshold",
                         "max_live_parameters",  "shard_group_size",
                         "hierarchical_gather",  "secondary_group_size",
                         "reduce_once",          "reduce_scatter",
                         "offload_optimizer",    "offload_param",
                         "cpu_checkpointing",    "tuning"};

/// Resolved values that decide only what a run writes about itself.
Names const reporting{"steps_per_print",     "wall_clock_breakdown", "memory_breakdown",
                      "dump_state",          "tensorboard",          "csv_monitor",
                      "trainer_tensorboard", "flops_profiler",       "comms_logger"};

/// Arguments that change what steps compute, and that no other part of the description has.
Names const training_arguments{"seed",          "tf32",
                               "eod_mask_loss", "reset_attention_mask",
                               "use_peft_lora", "reset_position_ids",
                               "lora_r",        "lora_target_modules",
                               "lora_alpha",    "frozen_parameters",
                               "lora_dropout",  "max_eval_samples",
                               "use_rslora",    "delayed_update_from_step"};

/// Members of config.json, by family: the probability of dropout in attention.
constexpr char const* attention_dropouts[] = {"attn_pdrop", "attention_dropout"};

/// Arguments that other parts of the description have as resolved values, and those that say what
/// this start of the program does.
Names const covered_arguments{"model_name_or_path",
                              "config_name",
                              "config_overrides",
                              "adapter",
                              "model_type",
                              "tokenizer_name",
                              "dtype",
                              "train_file",
                              "validation_file",
                              "validation_split_percentage",
                              "block_size",
                              "max_train_samples",
                              "keep_linebreaks",
                              "data_mixture",
                              "skip_broken_records",
                              "append_eos",
                              "train_sampling_strategy",
                              "group_by_length",
                              "data_seed",
                              "num_train_epochs",
                              "max_steps",
                              "per_device_train_batch_size",
                              "gradient_accumulation_steps",
                              "learning_rate",
                              "weight_decay",
                              "adam_beta1",
                              "adam_beta2",
                              "adam_epsilon",
                              "max_grad_norm",
                              "optim",
                              "lr_scheduler_type",
                              "lr_scheduler_kwargs",
                              "warmup_steps",
                              "dataloader_drop_last",
                              "fp16",
                              "bf16",
                              "fp16_full_eval",
                              "bf16_full_eval",
                              "fp8",
                              "master_weights",
                              "label_smoothing_factor",
                              "neftune_noise_alpha",
                              "reproducible",
                              "reduce_once",
                              "output_dir",
                              "overwrite_output_dir",
                              "allow_changed_data",
                              "resume_from_checkpoint",
                              "do_train",
                              "do_eval",
                              "do_predict",
                              "test_file",
                              "max_predict_samples",
                              "do_generate",
                              "print_config",
                              "help",
                              "version",
                              "prompt",
                              "max_new_tokens",
                              "temperature",
                              "top_k",
                              "prompt_file",
                              "top_p",
                              "min_p",
                              "repetition_penalty",
                              "stop_strings",
                              "time_limit"};

/// Members of config.json that say nothing about the model's computation.
Names const model_labels{"_name_or_path", "architectures", "dtype",
                         "torch_dtype",   "use_cache",     "transformers_version"};

std::string shown(ConfigTree const& value) {
  if (value.is_null()) return "none";
  return value.is_string() ? value.as_string() : value.dump();
}

std::string was_is(std::string_view name, ConfigTree const& was, ConfigTree const& is) {
  return concat(name, " was ", shown(was), ", is ", shown(is));
}

/// Numbers as a file has them: 1.0 and 1 are different in memory.
bool same(ConfigTree const& saved, ConfigTree const& now) {
  if (saved.is_number() && now.is_number()) return saved.as_double() == now.as_double();
  return saved == now || saved.dump() == now.dump();
}

ConfigTree const* member(ConfigTree const& tree, std::string_view block, std::string_view name) {
  auto const* found = tree.find(block);
  auto const* entry = found ? found->find(name) : nullptr;
  return entry ? entry->find("value") : nullptr;
}

/// cuDNN's attention draws other masks than the portable kernel.
bool drops_attention(ConfigTree const& model_config) {
  return std::any_of(std::begin(attention_dropouts), std::end(attention_dropouts),
                     [&](char const* name) {
                       return model_config.is_object() && model_config.get_double(name, 0.0) > 0.0;
                     });
}

/// Whether a step computes something else when the argument of this name has another value.
bool changes_training(std::string_view argument, ConfigTree const& model_config) {
  return training_arguments.contains(argument) ||
         (argument == "device_attention" && drops_attention(model_config));
}

/// The texts of values in @p block that both sides have, by @p of(name): null: not compared.
template <class ListOf>
void compare_block(RunDescription const& saved, RunDescription const& now, std::string_view block,
                   ListOf const& of) {
  auto const* all = now.resolved_config.find(block);
  if (!all || !all->is_object()) return;
  for (auto const& [name, entry] : all->as_object()) {
    std::vector<std::string>* const list = of(name);
    auto const* was = member(saved.resolved_config, block, name);
    auto const* is = member(now.resolved_config, block, name);
    if (list && was && is && !same(*was, *is)) list->push_back(was_is(name, *was, *is));
  }
}

/// Compares trainer_state.data: the samples of a step.
class DataComparison {
 public:
  DataComparison(ConfigTree const& saved, ConfigTree const& now) : saved_(saved), now_(now) {}

  std::vector<std::string> training_data() {
    file("train_file");
    value("train_file_part", "the part of train_file");
    for (char const* name :
         {"block_size", "keep_linebreaks", "data_mixture", "skip_broken_records", "append_eos"})
      value(name, name);
    file("tokenizer");
    if (texts_.empty()) value("samples", "the number of sequences");
    value("order", "train_sampling_strategy");
    if (differs("seed") && order(now_) != "sequential") value("seed", "data_seed");
    return std::move(texts_);
  }
  std::vector<std::string> evaluation_data() {
    file("validation_file");
    return std::move(texts_);
  }

 private:
  /// Returns the order as --train_sampling_strategy names it. Checkpoints of earlier versions say
  /// "random" for Philox's order.
  static std::string order(ConfigTree const& data) {
    auto const* given = data.find("order");
    std::string const name = given && given->is_string() ? given->as_string() : "";
    return name == "random" ? "philox" : name == "randperm" ? "random" : name;
  }
  bool differs(char const* name) const {
    if (std::string_view(name) == "order") return order(saved_) != order(now_);
    auto const *was = saved_.find(name), *is = now_.find(name);
    return was && is && !same(*was, *is);
  }
  void value(char const* name, char const* option) {
    if (!saved_.contains(name) || !now_.contains(name) || !differs(name)) return;
    if (std::string_view(name) == "order")
      texts_.push_back(was_is(option, order(saved_), order(now_)));
    else
      texts_.push_back(was_is(option, saved_.at(name), now_.at(name)));
  }
  /// A file counts as the same wherever it is, if its bytes are.
  void file(std::string const& name) {
    std::string const identity = name + "_xxh3";
    if (!differs(identity.c_str())) return;
    auto const *was = saved_.find(name), *is = now_.find(name);
    if (was && is && !same(*was, *is))
      texts_.push_back(was_is(name, *was, *is));
    else
      texts_.push_back(concat("the content of ", name, is ? " " + shown(*is) : "",
                              " has changed (XXH3 was ", shown(saved_.at(identity)), ", is ",
                              shown(now_.at(identity)), ")"));
  }

  ConfigTree const &saved_, &now_;
  std::vector<std::string> texts_;
};

}  // namespace

std::vector<std::string> compare_models(ConfigTree const& saved, ConfigTree const& now) {
  std::vector<std::string> texts;
  if (!saved.is_object() || !now.is_object()) return texts;
  for (auto const& [name, value] : now.as_object())
    if (auto const* was = saved.find(name);
        was && !model_labels.contains(name) && !same(*was, value))
      texts.push_back(was_is(name, *was, value));
  return texts;
}

ResumeChanges compare(RunDescription const& saved, RunDescription const& now) {
  ResumeChanges changes;
  changes.data = DataComparison(saved.data, now.data).training_data();
  compare_block(saved, now, "engine", [&](std::string_view name) {
    return distribution.contains(name) || reporting.contains(name) ? &changes.other
                                                                   : &changes.training;
  });
  if (saved.total_steps > 0 && now.total_steps > 0 && saved.total_steps != now.total_steps)
    changes.training.push_back(was_is("total_steps", saved.total_steps, now.total_steps));
  auto const append = [&](std::vector<std::string> const& texts) {
    changes.training.insert(changes.training.end(), texts.begin(), texts.end());
  };
  append(compare_models(saved.model_config, now.model_config));
  append(DataComparison(saved.data, now.data).evaluation_data());
  compare_block(saved, now, "arguments", [&](std::string_view name) {
    if (covered_arguments.contains(name)) return static_cast<std::vector<std::string>*>(nullptr);
    return changes_training(name, now.model_config) ? &changes.training : &changes.other;
  });
  return changes;
}

}  // namespace tessera::train
