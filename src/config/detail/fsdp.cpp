#include "detail/fsdp.hpp"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "tessera/config/arguments_table.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config::detail {
namespace {

using enum OptionType;

struct Strategy {
  char const* name;
  std::int64_t stage;
  bool within_nodes;
};
constexpr Strategy strategies[] = {{"full_shard", 3, false},
                                   {"shard_grad_op", 2, false},
                                   {"no_shard", 0, false},
                                   {"hybrid_shard", 3, true},
                                   {"hybrid_shard_zero2", 2, true}};

OptionTable build() {
  OptionTable t;
  t.group("FSDP");
  t.add(json, "sharding_strategy", {}, "FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD")
      .shown_as("a strategy");
  t.add(json, "reshard_after_forward", {},
        "true or full_shard: stage 3; false or shard_grad_op: stage 2")
      .shown_as("true, false or a strategy");
  t.add(boolean, "activation_checkpointing", false, "the same as --gradient_checkpointing");
  t.add(boolean, "activation_checkpointing_offload", false, "activation checkpoints in host memory")
      .refuse("leave it out, or use activation_checkpointing.cpu_checkpointing of DeepSpeed");
  for (char const* name : {"cpu_offload", "offload_params"})
    t.add(boolean, name, false, "keep parameters in host memory");
  t.add(boolean, "xla", false, "FSDP of PyTorch/XLA").refuse("leave it out");
  for (char const* name : {"xla_fsdp_v2", "xla_fsdp_grad_ckpt"})
    t.add(boolean, name, false, "FSDP of PyTorch/XLA").hint("no effect without xla");
  t.add(json, "xla_fsdp_settings", {}, "FSDP of PyTorch/XLA").hint("no effect without xla");
  t.add(integer, "version", 2, "version of FSDP").hint("no effect: there is one engine");
  char const* const own_units = "no effect: a ZeRO unit is a transformer block";
  t.add(integer, "min_num_params", 0, "size of a wrapped module").hint(own_units);
  t.add(list, "transformer_layer_cls_to_wrap", {}, "classes to wrap").hint(own_units);
  t.add(string, "auto_wrap_policy", "TRANSFORMER_BASED_WRAP", "what to wrap").hint(own_units);
  char const* const prefetch =
      "no effect: units are prefetched in forward and backward, as far as their buffers reach";
  for (char const* name : {"backward_prefetch", "backward_prefetch_policy"})
    t.add(string, name, "NO_PREFETCH", "prefetch in backward").hint(prefetch);
  t.add(boolean, "forward_prefetch", false, "prefetch in forward").hint(prefetch);
  t.add(boolean, "limit_all_gathers", true, "limit the all-gathers in flight").hint(prefetch);
  for (char const* name : {"use_orig_params", "sync_module_states"})
    t.add(boolean, name, true, "how modules are wrapped")
        .hint("no effect: every rank fills its own shard");
  t.add(boolean, "cpu_ram_efficient_loading", false, "load weights on one rank")
      .hint("no effect: every rank reads only its own shard");
  t.add(string, "state_dict_type", "FULL_STATE_DICT", "form of checkpoints")
      .hint("no effect: checkpoints are sharded, and the trained model is a Hugging Face model");
  t.convert_values("");
  return t;
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// PyTorch's name of the second hybrid strategy begins with '_'.
std::optional<Strategy> strategy_of(std::string const& name) {
  for (auto const& strategy : strategies)
    if (lower(name) == strategy.name || lower(name) == concat('_', strategy.name)) return strategy;
  return std::nullopt;
}

/// Reads --fsdp and the keys of --fsdp_config one by one.
class Reader {
 public:
  explicit Reader(TrainingArguments const& arguments) : arguments_(arguments) {}

  std::optional<FsdpChoice> read() {
    auto const words = words_of(arguments_.values.value(argument_table(), "fsdp"));
    if (words.empty()) {
      TESSERA_VALIDATE(arguments_.fsdp_config.is_null() || arguments_.fsdp_config.size() == 0,
                       UsageError,
                       "--fsdp_config has no effect without --fsdp; add --fsdp "
                       "full_shard or leave it out");
      return std::nullopt;
    }
    for (auto const& word : words) read_word(word);
    read_config();
    auto const chosen = strategy_.value_or(strategies[0]);
    choice_.stage = chosen.stage;
    choice_.within_nodes = chosen.within_nodes;
    choice_.notes.insert(
        choice_.notes.begin(),
        concat(
            "fsdp: ", chosen.name, " is ZeRO stage ", chosen.stage,
            chosen.within_nodes ? " within each node; gradients are summed over the nodes" : ""));
    return choice_;
  }

 private:
  /// Words from "full_shard auto_wrap", a list of words, or true.
  static std::vector<std::string> words_of(ConfigTree const& value) {
    std::vector<std::string> out;
    auto const split = [&out](std::string const& text) {
      std::istringstream in(text);
      for (std::string word; in >> word;) out.push_back(word);
    };
    if (value.is_bool() && value.as_bool()) out.emplace_back("full_shard");
    if (value.is_string()) split(value.as_string());
    if (value.is_array())
      for (auto const& item : value.as_array()) split(item.is_string() ? item.as_string() : "?");
    if (out.size() == 1 && (lower(out[0]) == "true" || lower(out[0]) == "false"))
      out = lower(out[0]) == "true" ? std::vector<std::string>{"full_shard"}
                                    : std::vector<std::string>{};
    return out;
  }

  void choose(Strategy const& strategy, char const* where) {
    bool const same = strategy_ && strategy_->stage == strategy.stage &&
                      strategy_->within_nodes == strategy.within_nodes;
    TESSERA_VALIDATE(!strategy_ || same, UsageError, where, " says ", strategy.name, ", but ",
                     strategy_ ? strategy_->name : "", " is given too; leave one out");
    strategy_ = strategy;
  }

  void read_word(std::string const& word) {
    if (auto const strategy = strategy_of(word)) return choose(*strategy, "--fsdp");
    if (lower(word) == "offload") {
      choice_.offloads = true;
      return;
    }
    if (lower(word) == "auto_wrap") {
      choice_.notes.emplace_back(
          "fsdp: auto_wrap has no effect, a ZeRO unit is a transformer block");
      return;
    }
    throw UsageError(concat("--fsdp has the word '", word,
                            "'; known are full_shard, shard_grad_op, no_shard, hybrid_shard, "
                            "hybrid_shard_zero2, offload and auto_wrap"));
  }

  void read_config() {
    if (arguments_.fsdp_config.is_null()) return;
    auto config = ConfigTree::object();
    for (auto const& [name, value] : arguments_.fsdp_config.as_object())
      config.set(name.starts_with("fsdp_") ? name.substr(5) : name, value);
    auto const keys = parse_flat(fsdp_table(), config, "fsdp_config");
    for (auto const& hint : keys.hints(fsdp_table()))
      choice_.notes.push_back("fsdp_config." + hint);
    for (char const* name : {"cpu_offload", "offload_params"})
      if (keys.value(fsdp_table(), name) == ConfigTree(true)) choice_.offloads = true;
    choice_.activation_checkpointing =
        keys.value(fsdp_table(), "activation_checkpointing") == ConfigTree(true);
    for (char const* name : {"sharding_strategy", "reshard_after_forward"})
      if (auto const& given = keys.value(fsdp_table(), name); !given.is_null())
        read_strategy(name, given);
  }

  void read_strategy(char const* name, ConfigTree const& given) {
    std::string text = given.is_string() ? lower(given.as_string()) : lower(given.dump());
    if (text == "auto") return;
    constexpr char const* by_number[] = {"full_shard", "shard_grad_op", "no_shard", "hybrid_shard",
                                         "hybrid_shard_zero2"};  // torch's ShardingStrategy from 1
    if (text.size() == 1 && text[0] >= '1' && text[0] <= '5') text = by_number[text[0] - '1'];
    if (text == "true") text = "full_shard";
    if (text == "false") text = "shard_grad_op";
    auto const strategy = strategy_of(text);
    TESSERA_VALIDATE(strategy, ConfigError, "fsdp_config.", name, " is ", given.dump(),
                     "; it must be FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or "
                     "HYBRID_SHARD_ZERO2");
    // --fsdp true or full_shard is the default, which the key refines
    if (strategy_ && strategy_->stage == 3 && !strategy_->within_nodes) strategy_.reset();
    // hybrid_shard with reshard_after_forward false is _hybrid_shard_zero2
    if (strategy_ && strategy_->within_nodes && !strategy->within_nodes && strategy->stage >= 2) {
      strategy_ = strategy_of(strategy->stage == 3 ? "hybrid_shard" : "hybrid_shard_zero2");
      return;
    }
    choose(*strategy, "fsdp_config");
  }

  TrainingArguments const& arguments_;
  std::optional<Strategy> strategy_;
  FsdpChoice choice_;
};

}  // namespace

OptionTable const& fsdp_table() {
  static OptionTable const table = build();
  return table;
}

std::optional<FsdpChoice> resolve_fsdp(TrainingArguments const& arguments) {
  return Reader(arguments).read();
}

}  // namespace tessera::config::detail
