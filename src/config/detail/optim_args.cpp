#include "detail/optim_args.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <sstream>

#include "tessera/config/option_table.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config::detail {
namespace {

using optim::HyperparameterRule;

HyperparameterRule const& rule_of(std::string const& name, optim::OptimizerInfo const& optimizer) {
  std::vector<std::string> known;
  std::string list;
  for (auto const& rule : optimizer.hyperparameters) {
    if (rule.is_derived) continue;
    if (name == rule.name) return rule;
    known.emplace_back(rule.name);
    list += concat(list.empty() ? "" : ", ", rule.name);
  }
  std::string const near = nearest_name(name, known);
  throw UsageError(
      concat("--optim_args: ", optimizer.algorithm, " has no parameter \"", name, "\"",
             near.empty() ? concat("; it has ", list) : concat("; did you mean ", near, "?")));
}

std::optional<double> number_of(std::string const& text) {
  double value = 0.0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

double value_of(std::string const& text, HyperparameterRule const& rule) {
  if (rule.range == HyperparameterRule::Range::flag) {
    std::string lower = text;
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
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
  std::istringstream items(packed);
  for (std::string item; std::getline(items, item, ',');) {
    auto const equals = item.find('=');
    TESSERA_VALIDATE(equals != std::string::npos, UsageError, "--optim_args: \"", item,
                     "\" has no \"=\"; write name=value, name=value");
    auto const& rule = rule_of(item.substr(0, equals), optimizer);
    TESSERA_VALIDATE(std::ranges::none_of(out, [&](auto const& h) { return h.name == rule.name; }),
                     UsageError, "--optim_args: ", rule.name, " occurs twice; remove one of them");
    out.push_back({rule.name, value_of(item.substr(equals + 1), rule)});
  }
  return out;
}

}  // namespace tessera::config::detail
