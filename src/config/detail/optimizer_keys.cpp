#include "detail/optimizer_keys.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "tessera/config/option_table.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/core/words.hpp"

namespace tessera::config::detail {
namespace {

std::string path_of(std::string const& key) { return "optimizer.params." + key; }

}  // namespace

void check_hyperparameters(DeepSpeedConfig const& json, std::string const& algorithm) {
  std::vector<std::string> unknown;
  auto const check = [&](std::string const& key, bool is_known) {
    auto const* given = is_known ? nullptr : json.find(path_of(key));
    if (!given) return;
    std::string const text = concat(path_of(key), " is ", given->dump());
    if (std::ranges::find(unknown, text) == unknown.end()) unknown.push_back(text);
  };
  for (char const* name : {"muon_lr", "adam_lr", "ns_method"}) check(name, algorithm == "Muon");
  auto const own = optim::optimizer_info(algorithm).hyperparameters;
  for (auto const& info : optim::optimizers())
    for (auto const& rule : info.hyperparameters) {
      if (info.not_in_deepspeed || rule.is_derived) continue;
      std::string const name = rule.name;
      bool const is_known = std::ranges::any_of(own, [&](auto const& r) { return name == r.name; });
      check(name.starts_with("beta") ? "betas" : name, is_known);
    }
  TESSERA_VALIDATE(unknown.empty(), ConfigError, json.source, ": ", join(unknown),
                   " but optimizer.type ", algorithm,
                   unknown.size() == 1 ? " has no such hyperparameter; remove the key"
                                       : " has no such hyperparameters; remove the keys");
}

double rate_multiple(DeepSpeedConfig const& json, std::string const& name, PeakRate const& peak) {
  constexpr double default_of_adam = 3e-4;
  bool const is_muon = name == "muon_rate";
  std::string const key = is_muon ? "muon_lr" : "adam_lr";
  double rate = peak.value;
  if (auto const* given = json.find(path_of(key)))
    rate = given->as_double();
  else if (!is_muon && !peak.is_given)
    rate = default_of_adam;
  if (rate == peak.value) return 1.0;
  TESSERA_VALIDATE(peak.value > 0.0, ConfigError, json.source, ": ", path_of(key), " is ", rate,
                   " but the learning rate is 0; set optimizer.params.lr to a positive rate");
  return rate / peak.value;
}

bool sets_own_rate(optim::OptimizerSpec const& optimizer, bool rate_is_given) {
  bool const is_relative =
      optimizer.has("relative_step") && optimizer.value("relative_step") != 0.0;
  TESSERA_VALIDATE(!is_relative || !rate_is_given, UsageError,
                   "--optim_args: relative_step sets the rate of each step, but --learning_rate "
                   "is given; remove one of them");
  return is_relative;
}

namespace {

using optim::HyperparameterRule;

HyperparameterRule const* rule_of(std::string const& name, optim::OptimizerInfo const& optimizer) {
  for (auto const& rule : optimizer.hyperparameters)
    if (!rule.is_derived && name == rule.name) return &rule;
  return nullptr;
}

void refuse_unknown(std::vector<std::string> const& names, optim::OptimizerInfo const& optimizer) {
  if (names.empty()) return;
  std::vector<std::string> known, words;
  for (auto const& rule : optimizer.hyperparameters)
    if (!rule.is_derived) known.emplace_back(rule.name);
  std::string const near = nearest_name(names.front(), known);
  for (auto const& name : names) words.push_back(concat('"', name, '"'));
  throw UsageError(concat("--optim_args: ", optimizer.algorithm,
                          names.size() == 1 ? " has no parameter " : " has no parameters ",
                          join(words),
                          near.empty() || names.size() > 1 ? concat("; it has ", join(known))
                                                           : concat("; did you mean ", near, "?")));
}

std::optional<double> number_of(std::string const& text) {
  double value = 0.0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

double value_of(std::string const& text, HyperparameterRule const& rule) {
  if (rule.range == HyperparameterRule::Range::flag) {
    std::string const lower = lower_case(text);
    for (char const* yes : {"true", "yes", "1"})
      if (lower == yes) return 1.0;
    for (char const* no : {"false", "no", "0"})
      if (lower == no) return 0.0;
    throw UsageError(
        concat("--optim_args: ", rule.name, " is \"", text, "\"; it must be true or false"));
  }
  auto const value = number_of(text);
  TESSERA_VALIDATE(value, UsageError, "--optim_args: ", rule.name, " is \"", text,
                   "\"; it must be a number");
  return *value;
}

}  // namespace

std::vector<optim::Hyperparameter> parse_optim_args(std::string const& text,
                                                    optim::OptimizerInfo const& optimizer) {
  std::string packed = text;
  std::erase_if(packed, [](unsigned char c) { return std::isspace(c); });
  std::vector<optim::Hyperparameter> out;
  std::vector<std::string> unknown;
  if (packed.empty()) return out;
  for (auto const& item : split(packed, ',')) {
    auto const equals = item.find('=');
    TESSERA_VALIDATE(equals != std::string::npos, UsageError, "--optim_args: \"", item,
                     "\" has no \"=\"; write name=value, name=value");
    std::string const name = item.substr(0, equals);
    auto const* rule = rule_of(name, optimizer);
    if (!rule) {
      unknown.push_back(name);
      continue;
    }
    TESSERA_VALIDATE(std::ranges::none_of(out, [&](auto const& h) { return h.name == rule->name; }),
                     UsageError, "--optim_args: ", rule->name, " occurs twice; remove one of them");
    out.push_back({rule->name, value_of(item.substr(equals + 1), *rule)});
  }
  refuse_unknown(unknown, optimizer);
  return out;
}

}  // namespace tessera::config::detail
