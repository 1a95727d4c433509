/// Resolved configurations against DeepSpeed and transformers, and the tables against what they
/// resolve to.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tessera/config/learning_rate.hpp"
#include "tessera/config/option_table.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::config {
namespace {

using Words = std::vector<std::string>;

ResolvedConfig resolved(std::string const& json, Words const& flags = {}, int world = 1,
                        std::int64_t hidden = 64) {
  TrainingArguments a = parse_options(flags);
  if (!json.empty())
    a.deepspeed = {ConfigTree::parse(json, "ds.json", ConfigTree::Syntax::relaxed), "ds.json"};
  return resolve(a, world, hidden);
}

Words flag_words(ConfigTree const& flags) {
  Words words;
  for (auto const& [name, value] : flags.as_object())
    words.push_back("--" + name + "=" + value.dump());
  return words;
}

bool same(ConfigTree const& a, ConfigTree const& b) {
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  if (!a.is_object() || !b.is_object()) return a == b;
  return a.size() == b.size() && std::ranges::all_of(a.as_object(), [&](auto const& member) {
           return b.contains(member.first) && same(member.second, b.at(member.first));
         });
}

/// Texts, flags and rank counts as DeepSpeed and transformers resolve or refuse them; stored by
/// tests/oracles/deepspeed_config.py.
TEST(DeepSpeedOracle, AgreesWithDeepSpeedAndTransformers) {
  auto const stored =
      ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/deepspeed_config.json");
  std::int64_t const hidden = stored.at("hidden_size").as_int();
  std::size_t refused = 0;
  for (auto const& entry : stored.at("cases").as_array()) {
    std::string const text = entry.at("text").as_string();
    int const ranks = static_cast<int>(entry.at("ranks").as_int());
    std::string const where = concat(" of ", text, " ", entry.at("flags").dump(), " on ", ranks);
    auto const& want = entry.at("resolved");
    if (want.is_null()) {
      EXPECT_ANY_THROW(resolved(text, flag_words(entry.at("flags")), ranks, hidden)) << where;
      ++refused;
      continue;
    }
    try {
      auto const c = resolved(text, flag_words(entry.at("flags")), ranks, hidden);
      auto described = describe(c);
      if (!c.scheduler.is_null())
        described["scheduler"].set("value",
                                   scheduler_section(c, stored.at("total_steps").as_int()));
      for (auto const& [name, value] : want.as_object()) {
        ASSERT_TRUE(described.contains(name)) << name;
        EXPECT_TRUE(same(described.at(name).at("value"), value))
            << name << " is " << described.at(name).at("value").dump() << ", not " << value.dump()
            << where;
      }
    } catch (Error const& e) {
      ADD_FAILURE() << e.what() << where;
    }
  }
  EXPECT_GE(refused, 40u);
}

/// Sets a.b.c in a tree of objects.
void set_path(ConfigTree& tree, std::string const& path, ConfigTree value) {
  auto const dot = path.find('.');
  if (dot == std::string::npos) {
    tree.set(path, std::move(value));
    return;
  }
  std::string const block = path.substr(0, dot);
  if (!tree.contains(block)) tree.set(block, ConfigTree::object());
  set_path(tree[block], path.substr(dot + 1), std::move(value));
}

/// Values that may differ from the default; not each is valid for each option.
std::vector<ConfigTree> candidates(Option const& option) {
  switch (option.type) {
    case OptionType::boolean:
      return {true, false};
    case OptionType::integer:
      return {0, 1, 2, 3, 16, 4096};
    case OptionType::real:
      return {0.5, 0.25, 3.0, 1e-5};
    case OptionType::choice:
      return {option.choices.begin(), option.choices.end()};
    case OptionType::list:
      return {ConfigTree::Array{"all_reduce"}, ConfigTree::Array{"tensorboard"}};
    case OptionType::numbers:
      return {ConfigTree::Array{0.5, 0.625}};
    case OptionType::json:
      return {ConfigTree::object().set("num_cycles", 2),
              ConfigTree::object().set("err_beta", 0.5),
              "never",
              "full_shard",
              "all",
              "node",
              "auto"};
    default:
      return {"chosen", "2GiB"};
  }
}

/// What a key needs next to it.
ConfigTree context_of(std::string const& key) {
  auto tree = ConfigTree::object();
  auto const in = [&](char const* prefix) { return key.starts_with(prefix); };
  if (in("fp16.")) set_path(tree, "fp16.enabled", true);
  if (in("bf16.")) set_path(tree, "bf16.enabled", true);
  if (key.ends_with("master_weights_and_grads") || key.ends_with("optimizer_states"))
    set_path(tree, "zero_optimization.stage", 1);
  if (key.ends_with("optimizer_states")) {
    set_path(tree, "bf16.enabled", true);
    set_path(tree, "bf16.bf16_master_weights_and_grads", true);
  }
  if (in("zero_optimization.")) set_path(tree, "zero_optimization.stage", 3);
  if (key.ends_with("zeropp_loco_param"))
    set_path(tree, "zero_optimization.zero_quantized_gradients", true);
  if (key.ends_with("mics_hierarchical_params_gather"))
    set_path(tree, "zero_optimization.mics_shard_size", 2);
  if (in("zero_optimization.offload_param.")) {
    set_path(tree, "zero_optimization.offload_param.device", "nvme");
    set_path(tree, "zero_optimization.offload_param.nvme_path", "/local");
  }
  if (in("zero_optimization.offload_optimizer.") || in("aio.")) {
    set_path(tree, "zero_optimization.stage", 2);
    set_path(tree, "zero_optimization.offload_optimizer.device", "nvme");
    set_path(tree, "zero_optimization.offload_optimizer.nvme_path", "/local");
    if (key.ends_with(".ratio"))  // NVMe takes everything
      set_path(tree, "zero_optimization.offload_optimizer.device", "cpu");
  }
  if (in("comms_logger.prof_ops")) set_path(tree, "comms_logger.prof_all", false);
  if (in("comms_logger.prof_all"))
    set_path(tree, "comms_logger.prof_ops", ConfigTree::Array{"all_reduce"});
  for (char const* block :
       {"flops_profiler", "comms_logger", "tensorboard", "csv_monitor", "autotuning"})
    if (in(block)) set_path(tree, concat(block, ".enabled"), true);
  for (char const* block : {"amp", "torch_autocast"})
    if (in(block)) set_path(tree, concat(block, ".enabled"), true);
  if (in("scheduler.")) set_path(tree, "scheduler.type", "WarmupLR");
  if (!in("optimizer.")) return tree;
  set_path(tree, "optimizer.type", key.ends_with("adam_w_mode") ? "Adam" : "AdamW");
  if (key.ends_with("muon_lr") || key.ends_with("adam_lr"))
    set_path(tree, "optimizer.type", "Muon");
  for (auto const& info : optim::optimizers())
    for (auto const& rule : info.hyperparameters)
      if (!info.not_in_deepspeed && key == concat("optimizer.params.", rule.name) &&
          key != "optimizer.params.weight_decay" && key != "optimizer.params.eps")
        set_path(tree, "optimizer.type", info.algorithm);
  return tree;
}

bool changes(ConfigTree const& before, ConfigTree const& after) {
  auto const values = [](ConfigTree const& tree) {
    try {
      return describe(resolved(tree.dump())).dump();
    } catch (Error const&) {
      return std::string();
    }
  };
  std::string const a = values(before), b = values(after);
  return !a.empty() && !b.empty() && a != b;
}

TEST(Tables, EveryKeyThatWorksChangesTheResolvedConfiguration) {
  std::size_t walked = 0;
  for (auto const& option : deepspeed_table().options()) {
    if (option.support != Support::full) continue;
    if (option.choices.size() == 1) continue;  // only the default is supported
    ++walked;
    ConfigTree const context = context_of(option.name);
    EXPECT_TRUE(std::ranges::any_of(candidates(option),
                                    [&](ConfigTree const& value) {
                                      ConfigTree tree = context;
                                      set_path(tree, option.name, value);
                                      return changes(context, tree);
                                    }))
        << option.name << " is marked as working, but changes nothing";
  }
  EXPECT_GT(walked, 70u);
}

std::string described(Words const& words) {
  try {
    auto const a = parse_options(words);
    return describe(a).dump() + describe(resolve(a, 2, 64)).dump();
  } catch (Error const&) {
    return "";
  }
}

TEST(Tables, EveryFlagThatWorksChangesTheArguments) {
  // these read a file, end the program, or only forbid a contradiction
  std::set<std::string> const others{"deepspeed", "accelerate_config", "fsdp_config", "help",
                                     "version",   "full_determinism",  "optim_args"};
  for (auto const& option : argument_table().options()) {
    if (option.support != Support::full || others.contains(option.name)) continue;
    Words context;
    if (option.name == "save_strategy" || option.name.starts_with("early_stopping"))
      context = {"--eval_strategy", "steps"};
    if (option.name.starts_with("lora_") || option.name == "use_rslora" ||
        option.name == "use_dora" || option.name == "init_lora_weights")
      context = {"--use_peft_lora"};
    if (option.name.starts_with("load_in_")) context = {"--use_peft_lora"};
    if (option.name.starts_with("bnb_4bit_")) context = {"--use_peft_lora", "--load_in_4bit"};
    if (option.name != "task" && option.group == argument_table().find("task")->group)
      context = {"--task", "sft"};
    if (option.group == argument_table().find("beta")->group)
      context = {"--task", "dpo", "--loss_type", "robust"};
    if (option.name == "adapter") context = {"--model_name_or_path", "base"};
    if (option.name == "tune_minutes") context = {"--auto_tune"};
    if (option.name == "dataloader_prefetch_factor") context = {"--dataloader_num_workers", "1"};
    std::string const before = described(context);
    EXPECT_TRUE(std::ranges::any_of(candidates(option),
                                    [&](ConfigTree const& value) {
                                      Words words = context;
                                      words.push_back("--" + option.name);
                                      words.push_back(value.is_string() ? value.as_string()
                                                      : value.is_array()
                                                          ? value.as_array().front().as_string()
                                                          : value.dump());
                                      auto const after = described(words);
                                      return !after.empty() && after != before;
                                    }))
        << option.name << " is marked as working, but changes nothing";
  }
}

}  // namespace
}  // namespace tessera::config
