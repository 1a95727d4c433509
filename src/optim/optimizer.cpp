#include "tessera/optim/optimizer.hpp"

#include <algorithm>
#include <cmath>

#include "optimizers/table.hpp"
#include "tessera/core/error.hpp"
#include "tessera/optim/compression.hpp"
#include "tessera/optim/matrix_optimizer.hpp"
#include "tessera/optim/summing_optimizer.hpp"

namespace tessera::optim {
namespace {

using detail::OptimizerEntry;
using Range = HyperparameterRule::Range;

/// Every optimizer. A new one gets its row here.
std::vector<OptimizerEntry> table() {
  return {detail::adamw_entry(),     detail::adam_entry(),         detail::sgd_entry(),
          detail::lion_entry(),      detail::adagrad_entry(),      detail::rmsprop_entry(),
          detail::adamax_entry(),    detail::nadam_entry(),        detail::radam_entry(),
          detail::lamb_entry(),      detail::one_bit_adam_entry(), detail::one_bit_lamb_entry(),
          detail::adafactor_entry(), detail::muon_entry(),         detail::adamw_8bit_entry(),
          detail::lion_8bit_entry(), detail::rmsprop_8bit_entry()};
}

std::string known_names() {
  std::string out;
  for (auto const& info : optimizers()) out += concat(out.empty() ? "" : ", ", info.algorithm);
  return out;
}

OptimizerEntry entry_of(std::string const& algorithm) {
  for (auto const& entry : table())
    if (algorithm == entry.info.algorithm) return entry;
  throw ConfigError(
      concat("optimizer ", algorithm, " is not implemented; use one of ", known_names()));
}

bool is_in(double value, Range range) {
  if (!std::isfinite(value)) return false;
  switch (range) {
    case Range::any:
      return true;
    case Range::flag:
      return value == 0.0 || value == 1.0;
    case Range::not_negative:
      return value >= 0.0;
    case Range::positive:
      return value > 0.0;
    case Range::unit:
      return value >= 0.0 && value < 1.0;
  }
  return false;
}

char const* text_of(Range range) {
  static constexpr char const* texts[] = {"a finite number", "0 or 1", "zero or positive",
                                          "positive", "in [0, 1)"};
  return texts[static_cast<std::size_t>(range)];
}

HyperparameterRule rule_of(OptimizerEntry const& entry, std::string const& name) {
  std::string known;
  for (auto const& rule : entry.info.hyperparameters) {
    if (name == rule.name) return rule;
    known += concat(known.empty() ? "" : ", ", rule.name);
  }
  throw ConfigError(concat("optimizer ", entry.info.algorithm, " has no hyperparameter ", name,
                           "; it has ", known));
}

void check(OptimizerEntry const& entry, Hyperparameter const& h) {
  auto const rule = rule_of(entry, h.name);
  TESSERA_VALIDATE(is_in(h.value, rule.range), ConfigError, "optimizer ", entry.info.algorithm,
                   ": ", h.name, " is ", h.value, "; it must be ", text_of(rule.range));
}

void check_values(OptimizerEntry const& entry, OptimizerSpec const& spec) {
  for (auto const& h : spec.hyperparameters) check(entry, h);
  for (auto const& group : spec.groups)
    for (auto const& h : group.overrides) check(entry, h);
  for (auto const& rule : entry.info.hyperparameters)
    TESSERA_VALIDATE(spec.has(rule.name), InternalError, "the spec of ", spec.algorithm,
                     " has no value of ", rule.name, "; make it with make_spec()");
}

}  // namespace

std::vector<OptimizerInfo> optimizers() {
  std::vector<OptimizerInfo> out;
  for (auto const& entry : table()) out.push_back(entry.info);
  return out;
}

OptimizerInfo optimizer_info(std::string const& algorithm) { return entry_of(algorithm).info; }

OptimizerSpec make_spec(std::string const& algorithm, std::vector<Hyperparameter> const& values,
                        std::vector<ParameterGroup> groups) {
  auto const entry = entry_of(algorithm);
  OptimizerSpec spec{algorithm, {}, {}, std::move(groups)};
  for (auto const& rule : entry.info.hyperparameters)
    spec.hyperparameters.push_back({rule.name, rule.value});
  for (auto const& given : values) {
    check(entry, given);
    std::find_if(spec.hyperparameters.begin(), spec.hyperparameters.end(), [&](auto const& h) {
      return h.name == given.name;
    })->value = given.value;
  }
  check_values(entry, spec);
  spec.states = entry.states(spec);
  return spec;
}

std::unique_ptr<Optimizer> make_optimizer(OptimizerSpec const& spec) {
  auto const entry = entry_of(spec.algorithm);
  check_values(entry, spec);
  auto states = spec;
  states.set_state_dtype(Dtype::fp32);
  TESSERA_VALIDATE(states.states == entry.states(spec), InternalError, "the spec of ",
                   spec.algorithm,
                   " has other states than its hyperparameters need; make it with make_spec()");
  return entry.make(spec);
}

bool is_elementwise(OptimizerSpec const& spec) {
  auto const optimizer = make_optimizer(spec);
  return !spec.has_codes() && !dynamic_cast<SummingOptimizer const*>(optimizer.get()) &&
         !dynamic_cast<MatrixOptimizer const*>(optimizer.get()) && !compression_of(*optimizer);
}

bool is_compressing(OptimizerSpec const& spec) { return compression_of(*make_optimizer(spec)); }

}  // namespace tessera::optim
