#include "detail/optimizer_keys.hpp"

#include <algorithm>

#include "tessera/core/error.hpp"

namespace tessera::config::detail {
namespace {

std::string path_of(std::string const& key) { return "optimizer.params." + key; }

void check_key(OptimizerKeys const& keys, std::string const& key, bool is_known,
               std::string const& algorithm) {
  auto const* given = keys.written(path_of(key));
  TESSERA_VALIDATE(is_known || !given, ConfigError, keys.source, ": ", path_of(key), " is ",
                   given->dump(), " but optimizer.type ", algorithm,
                   " has no such hyperparameter; remove the key");
}

}  // namespace

void check_hyperparameters(OptimizerKeys const& keys, std::string const& algorithm) {
  for (char const* name : {"muon_lr", "adam_lr", "ns_method"})
    check_key(keys, name, algorithm == "Muon", algorithm);
  auto const own = optim::optimizer_info(algorithm).hyperparameters;
  for (auto const& info : optim::optimizers())
    for (auto const& rule : info.hyperparameters) {
      if (info.not_in_deepspeed || rule.is_derived) continue;
      std::string const name = rule.name;
      bool const is_known = std::ranges::any_of(own, [&](auto const& r) { return name == r.name; });
      check_key(keys, name.starts_with("beta") ? "betas" : name, is_known, algorithm);
    }
}

double rate_multiple(OptimizerKeys const& keys, std::string const& name, PeakRate const& peak) {
  constexpr double default_of_adam = 3e-4;
  bool const is_muon = name == "muon_rate";
  std::string const key = is_muon ? "muon_lr" : "adam_lr";
  double rate = peak.value;
  if (auto const* given = keys.written(path_of(key)))
    rate = given->as_double();
  else if (!is_muon && !peak.is_given)
    rate = default_of_adam;
  if (rate == peak.value) return 1.0;
  TESSERA_VALIDATE(peak.value > 0.0, ConfigError, keys.source, ": ", path_of(key), " is ", rate,
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

}  // namespace tessera::config::detail
