#include "tessera/plan/choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "tessera/core/text.hpp"

namespace tessera::plan {
namespace {

using config::OffloadDevice;

/// DeepSpeed's default directory.
constexpr char const* nvme_directory = "/local_nvme";

ConfigTree const* find(ConfigTree const& tree, std::string_view block, std::string_view key) {
  auto const* const inner = tree.find(block);
  return inner ? inner->find(key) : nullptr;
}

bool is_given_number(ConfigTree const* value) { return value && value->is_number(); }

std::vector<int> stages(config::TrainingArguments const& a, config::ResolvedConfig const& c) {
  bool const fixed =
      is_given_number(find(a.deepspeed.document, "zero_optimization", "stage")) || a.given("fsdp");
  return fixed ? std::vector<int>{static_cast<int>(c.stage)} : std::vector<int>{0, 1, 2, 3};
}

std::vector<OffloadDevice> optimizer_devices(config::TrainingArguments const& a,
                                             config::ResolvedConfig const& c,
                                             ChoiceLimits const& limits) {
  if (find(a.deepspeed.document, "zero_optimization", "offload_optimizer"))
    return {c.offload.optimizer};
  std::vector<OffloadDevice> out{OffloadDevice::none};
  if (limits.has_device) out.push_back(OffloadDevice::cpu);
  if (limits.has_nvme) out.push_back(OffloadDevice::nvme);
  return out;
}

/// On a device weights leave after the optimizer.
std::vector<OffloadDevice> parameter_devices(config::TrainingArguments const& a,
                                             config::ResolvedConfig const& c,
                                             ChoiceLimits const& limits) {
  if (find(a.deepspeed.document, "zero_optimization", "offload_param"))
    return {c.offload.parameters};
  std::vector<OffloadDevice> out{OffloadDevice::none};
  if (limits.has_device) out.push_back(OffloadDevice::cpu);
  if (limits.has_nvme) out.push_back(OffloadDevice::nvme);
  return out;
}

/// 0: all ranks, or what the configuration says.
std::vector<std::int64_t> shard_groups(config::TrainingArguments const& a,
                                       ChoiceLimits const& limits) {
  std::vector<std::int64_t> out{0};
  bool const given = find(a.deepspeed.document, "zero_optimization", "mics_shard_size") ||
                     find(a.deepspeed.document, "zero_optimization", "zero_hpz_partition_size") ||
                     a.given("fsdp");
  if (!given) out.insert(out.end(), limits.shard_groups.begin(), limits.shard_groups.end());
  return out;
}

std::vector<std::int64_t> micro_batches(config::TrainingArguments const& a,
                                        config::ResolvedConfig const& c,
                                        ChoiceLimits const& limits) {
  bool const given = a.given("per_device_train_batch_size") ||
                     is_given_number(a.deepspeed.document.find("train_micro_batch_size_per_gpu"));
  bool const fixed = given && !limits.splits_given_batch;
  if (fixed) return {c.micro_batch_size};
  std::int64_t const batch = c.micro_batch_size * c.accumulation_steps;
  std::vector<std::int64_t> out;
  for (std::int64_t micro = batch; micro >= 1; --micro)
    if (batch % micro == 0) out.push_back(micro);
  return out;
}

ConfigTree offload_block(OffloadDevice device, ConfigTree block) {
  block.set("device", config::name_of(device));
  if (device == OffloadDevice::nvme && !block.contains("nvme_path"))
    block.set("nvme_path", nvme_directory);
  if (device == OffloadDevice::cpu && !block.contains("pin_memory")) block.set("pin_memory", true);
  return block;
}

void set_offload(ConfigTree& zero, char const* key, OffloadDevice device) {
  if (device == OffloadDevice::none) return zero.erase(key);
  auto const* const given = zero.find(key);
  zero.set(key, offload_block(device, given ? *given : ConfigTree::object()));
}

/// "auto" everywhere: the values of the flags.
ConfigTree automatic_config(config::TrainingArguments const& a) {
  auto out = ConfigTree::object()
                 .set("train_batch_size", "auto")
                 .set("train_micro_batch_size_per_gpu", "auto")
                 .set("gradient_accumulation_steps", "auto")
                 .set("gradient_clipping", "auto");
  if (a.bf16) out.set("bf16", ConfigTree::object().set("enabled", "auto"));
  if (a.fp16) out.set("fp16", ConfigTree::object().set("enabled", "auto"));
  return out;
}

}  // namespace

std::string ladder_step_of(Choice const& choice) {
  return fmt::format("stage {}{}{}", choice.stage,
                     choice.shard_group > 0
                         ? fmt::format(" in groups of {}", counted(choice.shard_group, "rank"))
                         : std::string(),
                     choice.offloads() ? " + offload" : "");
}

std::string text_of(Choice const& choice) {
  std::string out = fmt::format("stage {}", choice.stage);
  if (choice.shard_group > 0)
    out += fmt::format(" in groups of {}", counted(choice.shard_group, "rank"));
  if (choice.optimizer != OffloadDevice::none)
    out += fmt::format(" + offload_optimizer {}", config::name_of(choice.optimizer));
  if (choice.parameters != OffloadDevice::none)
    out += fmt::format(" + offload_param {}", config::name_of(choice.parameters));
  if (choice.recompute != Recompute::none)
    out += fmt::format(", recompute {}", name_of(choice.recompute));
  out += fmt::format(", micro-batch {} x {}", choice.micro_batch, choice.accumulation);
  if (choice.bucket_numel > 0) out += fmt::format(", buckets of {}", choice.bucket_numel);
  return out;
}

bool is_faster_by_the_guides(Choice const& a, Choice const& b) {
  auto const place = [](Choice const& c) {
    return std::tuple(c.stage, static_cast<int>(c.optimizer) + static_cast<int>(c.parameters),
                      c.recompute,
                      c.shard_group > 0 ? c.shard_group : std::numeric_limits<std::int64_t>::max(),
                      -c.micro_batch);
  };
  return place(a) < place(b);
}

std::vector<Choice> open_choices(config::TrainingArguments const& arguments,
                                 config::ResolvedConfig const& resolved,
                                 ChoiceLimits const& limits) {
  std::int64_t const batch = resolved.micro_batch_size * resolved.accumulation_steps;
  std::vector<Recompute> recomputations{arguments.recompute};
  if (!arguments.given("gradient_checkpointing") && !arguments.given("recompute"))
    recomputations = {Recompute::none, Recompute::light, Recompute::block};
  bool const names_both = find(arguments.deepspeed.document, "zero_optimization", "offload_param");
  std::vector<Choice> out;
  auto const groups = shard_groups(arguments, limits);
  auto const add = [&](Choice choice) {
    for (auto const group : groups) {
      choice.shard_group = group;
      if (group == 0 || (choice.stage == 3 && !choice.offloads())) out.push_back(choice);
    }
  };
  for (int const stage : stages(arguments, resolved))
    for (auto const optimizer : optimizer_devices(arguments, resolved, limits))
      for (auto const parameters : parameter_devices(arguments, resolved, limits))
        for (auto const recompute : recomputations)
          for (auto const micro : micro_batches(arguments, resolved, limits)) {
            if (stage == 0 && optimizer != OffloadDevice::none) continue;
            if (stage < 3 && parameters != OffloadDevice::none) continue;
            if (limits.has_device && parameters > optimizer && !names_both) continue;
            add({stage, optimizer, parameters, recompute, micro, batch / micro});
          }
  return out;
}

Choice given_choice(config::TrainingArguments const& arguments,
                    config::ResolvedConfig const& resolved) {
  return {static_cast<int>(resolved.stage), resolved.offload.optimizer,
          resolved.offload.parameters,      arguments.recompute,
          resolved.micro_batch_size,        resolved.accumulation_steps};
}

config::TrainingArguments arguments_of(config::TrainingArguments arguments, Choice const& choice) {
  arguments.per_device_train_batch_size = choice.micro_batch;
  arguments.gradient_accumulation_steps = choice.accumulation;
  arguments.recompute = choice.recompute;
  arguments.gradient_checkpointing = choice.recompute == Recompute::block;
  if (arguments.given("fsdp")) return arguments;
  bool const is_given = arguments.deepspeed.is_given();
  auto deepspeed = is_given ? arguments.deepspeed.document : automatic_config(arguments);
  auto const* const given = deepspeed.find("zero_optimization");
  ConfigTree zero = given ? *given : ConfigTree::object();
  zero.set("stage", choice.stage);
  set_offload(zero, "offload_optimizer", choice.optimizer);
  set_offload(zero, "offload_param", choice.parameters);
  if (choice.bucket_numel > 0)
    zero.set("reduce_bucket_size", choice.bucket_numel)
        .set("allgather_bucket_size", choice.bucket_numel);
  if (choice.shard_group > 0) zero.set("mics_shard_size", choice.shard_group);
  deepspeed.set("zero_optimization", std::move(zero));
  for (char const* key : {"train_micro_batch_size_per_gpu", "gradient_accumulation_steps"})
    deepspeed.set(key, "auto");
  arguments.deepspeed = {std::move(deepspeed), is_given ? arguments.deepspeed.source
                                                        : "the plan's DeepSpeed configuration"};
  return arguments;
}

}  // namespace tessera::plan
