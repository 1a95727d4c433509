#include "tessera/config/arguments.hpp"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "detail/accelerate.hpp"
#include "detail/option_rows.hpp"
#include "detail/resolvers.hpp"
#include "tessera/config/option_table.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/config/word_reader.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config {
namespace {

OptionValues merged(OptionValues lower, OptionValues const& upper) {
  for (auto const& [name, entry] : upper.entries) lower.entries[name] = entry;
  return lower;
}

OptionValues collect(std::vector<std::string> const& words, ReadDocument const& read) {
  std::vector<std::string> positionals;
  OptionValues const flags = parse_flags(argument_table(), words, positionals);
  if (positionals.empty()) return flags;
  TESSERA_VALIDATE(positionals.size() == 1, UsageError, "'", positionals[1], "' follows '",
                   positionals[0], "'; only one run file is read, everything else is --name value");
  std::string const& file = positionals.front();
  TESSERA_VALIDATE(
      file.ends_with(".json"), UsageError, "'", file,
      "' is not an option; options are written --name value, and a run file ends in .json");
  return merged(parse_flat(argument_table(), read(file), file), flags);
}

/// Values of --accelerate_config where neither flag nor run file gives one; returns its notes.
std::vector<std::string> add_accelerate(OptionValues& values, ReadDocument const& read) {
  auto const& file = values.value(argument_table(), "accelerate_config");
  if (file.is_null()) return {};
  auto accelerate = detail::read_accelerate(read(file.as_string()), file.as_string());
  for (char const* name : {"deepspeed", "fsdp"})
    TESSERA_VALIDATE(!values.given(name) || !accelerate.values.given(name), UsageError, "--", name,
                     " and the ", name, "_config of ", file.as_string(),
                     " are both given; leave one out");
  values = merged(std::move(accelerate.values), values);
  return std::move(accelerate.notes);
}

/// Options that set another option's field.
void apply_dependent_options(TrainingArguments& a) {
  auto const& v = a.values;
  if (!a.given("eval_steps")) a.eval_steps = a.logging_steps;
  if (a.warmup_steps == 0.0 && a.given("warmup_ratio")) {
    double const ratio = v.value(argument_table(), "warmup_ratio").as_double();
    a.warmup_steps = std::min(ratio, std::nextafter(1.0, 0.0));  // 1 would mean one step
  }
  if (!a.given("comm_timeout") && a.given("ddp_timeout"))
    a.comm_timeout_seconds = static_cast<double>(v.value(argument_table(), "ddp_timeout").as_int());
  std::string const device = v.value(argument_table(), "device").as_string();
  a.use_cpu = a.use_cpu || device == "cpu";
  a.needs_gpu = device == "gpu" || device == "cuda";
  TESSERA_VALIDATE(
      a.deterministic || !v.value(argument_table(), "full_determinism").as_bool(), UsageError,
      "--full_determinism and --deterministic false contradict each other; leave one out");
  TESSERA_VALIDATE(!a.dataloader_prefetch_factor || a.dataloader_num_workers > 0, UsageError,
                   "--dataloader_prefetch_factor is ", a.dataloader_prefetch_factor.value_or(0),
                   " and no thread loads ahead; add --dataloader_num_workers 1");
  memory_bounds(a);  // refuses what is not a size
  TESSERA_VALIDATE(!a.use_cpu || !a.needs_gpu, UsageError,
                   "--use_cpu and --device gpu contradict each other; leave one out");
  if (a.eval_strategy != Interval::no) a.do_eval = true;
  if (a.task == Task::dpo && !a.given("loss_type")) a.loss_type = LossType::sigmoid;
  if (a.task != Task::clm && a.max_length > 0 && a.given("max_length"))
    a.block_size = a.max_length;  // what plan and estimate count with
  if (a.include_num_input_tokens_seen == "true") a.include_num_input_tokens_seen = "all";
  if (a.include_num_input_tokens_seen.empty()) a.include_num_input_tokens_seen = "no";
  if (a.metric_for_best_model.empty() &&
      (a.load_best_model_at_end || a.save_strategy == Interval::best || a.early_stopping_patience))
    a.metric_for_best_model = "loss";
  if (a.resume_from_checkpoint == "True") a.resume_from_checkpoint = "true";
  if (a.resume_from_checkpoint == "Auto" || a.resume_from_checkpoint == "AUTO")
    a.resume_from_checkpoint = "auto";
  if (a.resume_from_checkpoint == "False" || a.resume_from_checkpoint == "false")
    a.resume_from_checkpoint.clear();
  std::string const output = a.output_dir.string();
  if (char const* home = std::getenv("HOME"); home && (output == "~" || output.starts_with("~/")))
    a.output_dir = home + output.substr(1);
}

void load_deepspeed(TrainingArguments& a, ReadDocument const& read) {
  auto const& value = a.values.value(argument_table(), "deepspeed");
  if (value.is_null()) return;
  TESSERA_VALIDATE(value.is_string() || value.is_object(), ConfigError,
                   "deepspeed must be a path or a block {...}, found ", value.type_name(), " ",
                   value.dump());
  if (value.is_string())
    a.deepspeed = {read(value.as_string()), value.as_string()};
  else
    a.deepspeed = {value, "deepspeed"};
}

/// --fsdp_config; its activation_checkpointing is --gradient_checkpointing.
void load_fsdp(TrainingArguments& a, ReadDocument const& read) {
  auto const& value = a.values.value(argument_table(), "fsdp_config");
  if (!value.is_null()) {
    a.fsdp_config = value.is_string() ? read(value.as_string()) : value;
    TESSERA_VALIDATE(a.fsdp_config.is_object(), ConfigError,
                     "--fsdp_config must be a path to an object {...} or the object, found ",
                     a.fsdp_config.type_name(), " ", a.fsdp_config.dump());
  }
  if (auto const fsdp = detail::resolve_fsdp(a); fsdp && fsdp->activation_checkpointing)
    a.gradient_checkpointing = true;
}

/// --gradient_checkpointing is --recompute block.
void join_recomputation(TrainingArguments& a) {
  if (!a.given("recompute") && a.gradient_checkpointing) a.recompute = Recompute::block;
  TESSERA_VALIDATE(!a.gradient_checkpointing || a.recompute == Recompute::block, UsageError,
                   "--recompute ", name_of(a.recompute),
                   " and activation checkpointing (--gradient_checkpointing, or ",
                   "activation_checkpointing of FSDP) contradict each other; leave one out");
  a.gradient_checkpointing = a.recompute == Recompute::block;
}

/// What the choice of the best checkpoint needs.
void validate_best(TrainingArguments const& a) {
  bool const chooses = a.load_best_model_at_end || a.save_strategy == Interval::best ||
                       a.early_stopping_patience.has_value();
  if (!chooses) return;
  char const* const option = a.load_best_model_at_end            ? "load_best_model_at_end"
                             : a.save_strategy == Interval::best ? "save_strategy best"
                                                                 : "early_stopping_patience";
  TESSERA_VALIDATE(a.eval_strategy != Interval::no, UsageError, "--", option,
                   " compares evaluations, but --eval_strategy is no; set it to steps or epoch");
  std::string const& metric = a.metric_for_best_model;
  bool known = false;
  for (char const* name : {"loss", "perplexity", "accuracy"})
    known = known || metric == name || metric == std::string("eval_") + name;
  TESSERA_VALIDATE(known, UsageError, "--metric_for_best_model is ", metric,
                   "; an evaluation measures loss, perplexity and accuracy");
  if (!a.load_best_model_at_end || a.save_strategy == Interval::best) return;
  TESSERA_VALIDATE(a.save_strategy == a.eval_strategy, UsageError,
                   "--load_best_model_at_end needs a checkpoint of each evaluated step, but "
                   "--eval_strategy is ",
                   to_tree(a.eval_strategy).as_string(), " and --save_strategy ",
                   to_tree(a.save_strategy).as_string(),
                   "; make them equal, or --save_strategy best");
  TESSERA_VALIDATE(!a.save_only_model, UsageError,
                   "--load_best_model_at_end loads a checkpoint with optimizer states, but "
                   "--save_only_model is given; leave one out");
  bool const multiple = a.save_strategy != Interval::steps ||
                        std::abs(std::remainder(a.save_steps, a.eval_steps)) < 1e-9;
  TESSERA_VALIDATE(multiple, UsageError, "--save_steps is ", a.save_steps,
                   ", not a multiple of --eval_steps ", a.eval_steps,
                   "; --load_best_model_at_end needs that");
}

void require_model(TrainingArguments const& a) {
  bool const from_path = !a.model_name_or_path.empty() || !a.config_name.empty();
  TESSERA_VALIDATE(from_path || !a.model_type.empty(), UsageError,
                   "no model: give --model_name_or_path DIR, or for random weights --config_name "
                   "DIR or --model_type NAME");
  TESSERA_VALIDATE(!a.tokenizer_name.empty() || !a.model_name_or_path.empty(), UsageError,
                   "no tokenizer: give --tokenizer_name DIR (a directory with tokenizer.json)");
}

void validate_adapters(TrainingArguments const& a) {
  for (char const* name : {"lora_r", "lora_alpha", "lora_dropout", "lora_target_modules",
                           "use_rslora", "use_dora", "init_lora_weights", "lora_modules_to_save"}) {
    if (a.values.origin(name) == Origin::default_value) continue;
    TESSERA_VALIDATE(a.adapter.empty(), UsageError, "--", name, " cannot go with --adapter, whose ",
                     "adapter_config.json says it; leave one out");
    TESSERA_VALIDATE(a.use_peft_lora, UsageError, "--", name,
                     " has no effect without --use_peft_lora; give both or none");
  }
  TESSERA_VALIDATE(!a.quantizes_base() || a.use_peft_lora || !a.adapter.empty(), UsageError, "--",
                   a.load_in_4bit ? "load_in_4bit" : "load_in_8bit",
                   " keeps frozen weights as codes, and without adapters none are frozen; give "
                   "--use_peft_lora or --adapter");
  TESSERA_VALIDATE(!(a.load_in_4bit && a.load_in_8bit), UsageError,
                   "--load_in_4bit and --load_in_8bit exclude each other; leave one out");
  for (char const* name :
       {"bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "bnb_4bit_compute_dtype"})
    TESSERA_VALIDATE(a.load_in_4bit || a.values.origin(name) == Origin::default_value, UsageError,
                     "--", name, " has no effect without --load_in_4bit; give both or none");
  TESSERA_VALIDATE(a.adapter.empty() || !a.model_name_or_path.empty(), UsageError,
                   "--adapter needs the model that it adapts; give --model_name_or_path DIR");
}

template <class Enum>
char const* word_of(Enum value) {
  return enum_names<Enum>.at(static_cast<std::size_t>(value));
}

/// @throws UsageError when an option of @p names is given, which belongs to another task
void refuse_options(TrainingArguments const& a, std::initializer_list<char const*> names,
                    std::string const& why) {
  for (char const* name : names) TESSERA_VALIDATE(!a.given(name), UsageError, "--", name, why);
}

/// What a training on preferences needs and what it does not have.
void validate_preferences(TrainingArguments const& a) {
  bool const robust = a.loss_type == LossType::robust;
  TESSERA_VALIDATE(a.loss_type >= LossType::sigmoid, UsageError, "--loss_type ",
                   word_of(a.loss_type),
                   " is a loss of supervised fine-tuning; with --task dpo give sigmoid, hinge, "
                   "ipo or robust");
  TESSERA_VALIDATE(robust || a.label_smoothing == 0.0, UsageError,
                   "--label_smoothing is the probability of swapped labels of --loss_type robust; ",
                   word_of(a.loss_type), " has none: give that loss, or leave it out");
  TESSERA_VALIDATE(a.label_smoothing < 0.5, UsageError, "--label_smoothing is ", a.label_smoothing,
                   "; it must be below 0.5, or the labels say nothing");
  refuse_options(
      a,
      {"dataset_text_field", "record_template", "assistant_only_loss", "completion_only_loss",
       "packing", "packing_strategy", "eval_packing", "padding_free", "data_mixture",
       "label_smoothing_factor", "neftune_noise_alpha", "auto_find_batch_size"},
      " cannot go with --task dpo; leave it out");
}

/// Options of the other tasks.
void validate_task(TrainingArguments const& a) {
  if (a.task == Task::clm)
    refuse_options(
        a,
        {"max_length", "eos_token", "chat_template_path", "loss_type", "pad_to_multiple_of",
         "dataset_text_field", "record_template", "assistant_only_loss", "completion_only_loss",
         "packing", "packing_strategy", "eval_packing", "padding_free"},
        " is an option of supervised fine-tuning; add --task sft");
  if (a.task != Task::dpo)
    refuse_options(
        a, {"beta", "label_smoothing", "ref_model_name_or_path", "precompute_ref_log_probs"},
        " is an option of a training on preferences; add --task dpo");
  if (a.task == Task::clm) return;
  std::string const task =
      concat(" is an option of packed text and cannot go with --task ", word_of(a.task), "; ");
  refuse_options(a, {"block_size"}, task + "use --max_length");
  refuse_options(a,
                 {"append_eos", "reset_attention_mask", "reset_position_ids", "eod_mask_loss",
                  "group_by_length"},
                 task + "leave it out");
  TESSERA_VALIDATE(a.train_sampling_strategy != Sampling::group_by_length, UsageError,
                   "--train_sampling_strategy group_by_length with --task ", word_of(a.task),
                   ": examples are not sorted by length; use random, or --packing");
  if (a.task == Task::dpo) return validate_preferences(a);
  TESSERA_VALIDATE(a.loss_type < LossType::sigmoid, UsageError, "--loss_type ",
                   word_of(a.loss_type),
                   " is a loss of preferences; add --task dpo, or give nll or dft");
  TESSERA_VALIDATE(!a.packing_rows() || a.max_length > 0, UsageError,
                   "--packing needs the length of a row; give --max_length");
  TESSERA_VALIDATE(a.loss_type != LossType::dft || a.label_smoothing_factor == 0.0, UsageError,
                   "--loss_type dft has no label smoothing; leave --label_smoothing_factor out");
}

/// Contradictions between options that are given.
void validate(TrainingArguments const& a) {
  TESSERA_VALIDATE(!(a.fp16 && a.bf16), UsageError,
                   "--fp16 and --bf16 contradict each other; choose one");
  bool const from_path = !a.model_name_or_path.empty() || !a.config_name.empty();
  TESSERA_VALIDATE(a.config_overrides.empty() || !from_path, UsageError,
                   "--config_overrides changes the sizes of --model_type and cannot go with "
                   "--config_name or --model_name_or_path; edit a copy "
                   "of config.json instead");
  TESSERA_VALIDATE(a.lr_scheduler_kwargs.is_null() || a.lr_scheduler_kwargs.is_object(), UsageError,
                   "--lr_scheduler_kwargs is ", a.lr_scheduler_kwargs.dump(),
                   "; it must be a JSON object like {\"num_cycles\": 2}");
  validate_adapters(a);
  validate_task(a);
  for (char const* known : {"no", "all", "non_padding"})
    if (a.include_num_input_tokens_seen == known) return validate_best(a);
  throw UsageError(concat("--include_num_input_tokens_seen is ", a.include_num_input_tokens_seen,
                          "; it must be one of no, all, non_padding, or a boolean"));
}

}  // namespace

DeepSpeedConfig::DeepSpeedConfig(ConfigTree written, std::string file)
    : document(std::move(written)), source(std::move(file)) {
  TESSERA_VALIDATE(document.is_object(), ConfigError, source,
                   " must hold a JSON object {...}, found ", document.type_name());
  auto canonical = detail::canonical_config(document, source);
  tree = std::move(canonical.tree);
  keys = parse_nested(deepspeed_table(), tree, source);
  notes = std::move(canonical.notes);
  for (auto& hint : keys.hints(deepspeed_table())) notes.push_back(std::move(hint));
}

ConfigTree const& DeepSpeedConfig::value(std::string_view key) const {
  return keys.value(deepspeed_table(), key);
}

ConfigTree const* DeepSpeedConfig::find(std::string_view key) const {
  auto const found = keys.entries.find(key);
  bool const is_written = found != keys.entries.end() && found->second.value != ConfigTree("auto");
  return is_written ? &found->second.value : nullptr;
}

ConfigTree to_tree(RanksPerFile ranks) {
  return ranks.count > 0 ? ConfigTree(ranks.count) : ConfigTree("node");
}

/// A number from a run file, text from the command line.
void assign(RanksPerFile& ranks, ConfigTree const& value, std::string const& name) {
  std::string const text = value.is_string() ? value.as_string() : value.dump();
  int count = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  bool const is_number = error == std::errc{} && end == text.data() + text.size() && count >= 1;
  TESSERA_VALIDATE(is_number || text == "node", UsageError, name, " is '", text,
                   "'; give a number of ranks from 1, or node");
  ranks.count = is_number ? count : 0;
}

ConfigTree to_tree(MemorySaveSteps steps) {
  return steps.count == MemorySaveSteps::automatic ? ConfigTree("auto") : ConfigTree(steps.count);
}

/// A number from a run file, text from the command line.
void assign(MemorySaveSteps& steps, ConfigTree const& value, std::string const& name) {
  std::string const text = value.is_string() ? value.as_string() : value.dump();
  std::int64_t count = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  bool const is_number = error == std::errc{} && end == text.data() + text.size() && count >= 0;
  TESSERA_VALIDATE(is_number || text == "auto", UsageError, name, " is '", text,
                   "'; give a number of steps, 0 for none, or auto");
  steps.count = is_number ? count : MemorySaveSteps::automatic;
}

ConfigTree read_document(std::string const& file) {
  if (file.ends_with(".yaml") || file.ends_with(".yml")) return detail::read_yaml(file);
  return ConfigTree::read(file, ConfigTree::Syntax::relaxed);
}

FirstLook look_at_flags(std::vector<std::string> const& words) {
  auto const flags = collect(words, [](std::string const&) { return ConfigTree::object(); });
  FirstLook out;
  assign(out.help, flags.value(argument_table(), "help"), "--help");
  assign(out.version, flags.value(argument_table(), "version"), "--version");
  return out;
}

void require_run(TrainingArguments const& a) {
  TESSERA_VALIDATE(
      a.do_train || a.do_eval || a.do_predict || a.do_generate || a.print_config || a.auto_tune,
      UsageError,
      "nothing to do: give --do_train, --do_eval, --do_predict or --do_generate; see tessera-train "
      "--help");
  require_model(a);
  TESSERA_VALIDATE(!a.do_train || !a.train_file.empty(), UsageError,
                   "--do_train needs --train_file");
  TESSERA_VALIDATE(!a.do_eval || !a.validation_file.empty() || !a.train_file.empty(), UsageError,
                   "--do_eval needs --validation_file, or a --train_file of which "
                   "validation_split_percentage is kept");
  TESSERA_VALIDATE(!a.do_predict || !a.test_file.empty(), UsageError,
                   "--do_predict needs --test_file");
  TESSERA_VALIDATE(!a.do_generate || !a.prompt.empty() || !a.prompt_file.empty(), UsageError,
                   "--do_generate needs --prompt TEXT or --prompt_file FILE");
  TESSERA_VALIDATE(a.prompt.empty() || a.prompt_file.empty(), UsageError,
                   "--prompt and --prompt_file contradict each other; leave one out");
  TESSERA_VALIDATE(a.do_eval || a.eval_prompts.empty(), UsageError,
                   "--eval_prompts are continued by evaluations; give --do_eval, and for "
                   "evaluations during the training --eval_strategy");
  for (auto const& stop : a.stop_strings)
    TESSERA_VALIDATE(!stop.empty(), UsageError, "--stop_strings has an empty string");
}

TrainingArguments parse_arguments(std::vector<std::string> const& words, ReadDocument const& read) {
  auto arguments = parse_options(words, read);
  if (arguments.help.empty() && !arguments.version) require_run(arguments);
  return arguments;
}

TrainingArguments parse_options(std::vector<std::string> const& words, ReadDocument const& read) {
  TrainingArguments a;
  a.values = collect(words, read);
  auto const accelerate_notes = add_accelerate(a.values, read);
  for (auto const& field : detail::argument_rows().fields)
    if (auto const given = a.values.entries.find(field.name); given != a.values.entries.end())
      field.assign(a, given->second.value);
  if (!a.help.empty() || a.version) return a;
  apply_dependent_options(a);
  validate(a);
  load_deepspeed(a, read);
  load_fsdp(a, read);
  join_recomputation(a);
  a.hints = a.values.hints(argument_table());
  a.hints.insert(a.hints.end(), accelerate_notes.begin(), accelerate_notes.end());
  return a;
}

ConfigTree describe(TrainingArguments const& arguments) {
  auto out = ConfigTree::object();
  for (auto const& field : detail::argument_rows().fields)
    out.set(field.name, ConfigTree::object()
                            .set("value", field.read(arguments))
                            .set("origin", name_of(arguments.values.origin(field.name))));
  return out;
}

std::int64_t step_interval(double value, std::int64_t total_steps) {
  double const steps = value < 1.0 ? std::ceil(value * static_cast<double>(total_steps)) : value;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(steps));
}

}  // namespace tessera::config
