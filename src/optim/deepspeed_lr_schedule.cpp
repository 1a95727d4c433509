#include "tessera/optim/schedule.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "detail/params.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"

namespace tessera::optim {
/// The schedules are functions of DeepSpeed's iteration i: -1 before the first optimizer step, then
/// 0, 1, ...
namespace {

using detail::Params;

constexpr auto where = "scheduler.params";
using Rate = std::function<double(double i)>;

/// The position in a run comes from the checkpoint; the key exists because DeepSpeed's constructors
/// have it.
void refuse_position(Params const& params) {
  TESSERA_VALIDATE(params.number("last_batch_iteration", -1.0) == -1.0, ConfigError, where,
                   ".last_batch_iteration is set; a resumed run takes its position from the "
                   "checkpoint, remove the key");
}

/// rate(i) = min (1 + step_rate x), x = (i + 1) / step_size, x rounded down with staircase.
Rate lr_range_test(ConfigTree const& tree, double) {
  Params const params(tree, where,
                      {"lr_range_test_min_lr", "lr_range_test_step_size", "lr_range_test_step_rate",
                       "lr_range_test_staircase", "last_batch_iteration"});
  refuse_position(params);
  double const least = params.number("lr_range_test_min_lr", 1e-3),
               rate = params.number("lr_range_test_step_rate", 1.0);
  double const size = static_cast<double>(params.integer("lr_range_test_step_size", 1, 2000));
  bool const staircase = params.flag("lr_range_test_staircase", false);
  return [=](double i) {
    double const x = (i + 1.0) / size;
    return least * (1.0 + rate * (staircase ? std::floor(x) : x));
  };
}

/// One rise from min to max and back, then a decay of min.
struct OneCycle {
  double least, most, decay_rate, decay_step;
  double first, second;
  double first_stairs, second_stairs;

  double operator()(double i) const {
    double const total = first + second;
    if (i < total) return least + (most - least) * height(std::fmod(i + 1.0, total));
    if (decay_rate == 0.0 || decay_step == 0.0) return least;
    return least / (1.0 + decay_rate * (i - total + 1.0) / decay_step);
  }
  /// 0 at the ends of the cycle, 1 at its top; at: steps since its beginning.
  double height(double at) const {
    bool const rises = at <= first;
    double const stairs = rises ? first_stairs : second_stairs;
    double const part = rises ? at / first : (first + second - at) / second;
    if (stairs <= 0.0) return part;
    double const step = rises ? at * stairs / first : (first + second - at) * stairs / second;
    return std::floor(step) / stairs;
  }
};

Params one_cycle_params(ConfigTree const& tree) {
  Params const params(tree, where,
                      {"cycle_min_lr", "cycle_max_lr", "decay_lr_rate", "cycle_first_step_size",
                       "cycle_second_step_size", "cycle_first_stair_count",
                       "cycle_second_stair_count", "decay_step_size", "cycle_momentum",
                       "cycle_min_mom", "cycle_max_mom", "decay_mom_rate", "last_batch_iteration"});
  refuse_position(params);
  return params;
}

/// The cycle's shape.
OneCycle cycle_of(Params const& params) {
  OneCycle c{};
  c.decay_step = static_cast<double>(params.integer("decay_step_size", 0, 0));
  c.first = static_cast<double>(params.integer("cycle_first_step_size", 1, 2000));
  c.second = static_cast<double>(
      params.integer("cycle_second_step_size", 0, static_cast<std::int64_t>(c.first)));
  c.first_stairs = static_cast<double>(params.integer("cycle_first_stair_count", 0, 0));
  c.second_stairs = static_cast<double>(
      params.integer("cycle_second_stair_count", 0, static_cast<std::int64_t>(c.first_stairs)));
  return c;
}

Rate one_cycle(ConfigTree const& tree, double) {
  Params const params = one_cycle_params(tree);
  OneCycle c = cycle_of(params);
  c.least = params.required_number("cycle_min_lr");
  c.most = params.required_number("cycle_max_lr");
  c.decay_rate = params.number("decay_lr_rate", 0.0);
  return c;
}

/// Falls from the largest to the smallest value while the rate rises, and grows after the cycle.
/// DeepSpeed starts it at the smallest value.
Rate one_cycle_momentum(ConfigTree const& tree) {
  Params const params = one_cycle_params(tree);
  OneCycle const c = cycle_of(params);
  double const least = params.number("cycle_min_mom", 0.8),
               most = params.number("cycle_max_mom", 0.9);
  double const rate = params.number("decay_mom_rate", 0.0);
  return [=](double i) {
    double const total = c.first + c.second;
    if (i < 0.0) return least;
    if (i < total) return most - (most - least) * c.height(std::fmod(i + 1.0, total));
    if (rate == 0.0 || c.decay_step == 0.0) return most;
    return most * (1.0 + rate * (i - total + 1.0) / c.decay_step);
  };
}

/// The rising part that three schedulers share: 0 at i = 0, 1 at i = steps.
struct Warmup {
  double steps;
  bool linear;
  explicit Warmup(Params const& params)
      : steps(static_cast<double>(
            std::max<std::int64_t>(2, params.integer("warmup_num_steps", 0, 1000)))),
        linear(params.text("warmup_type", {"log", "linear"}, "log") == "linear") {}
  double gamma(double i) const { return linear ? i / steps : std::log(i + 1.0) / std::log(steps); }
  void compare(double total) const {
    if (total < steps)
      log::warning(concat(where, ".total_num_steps is ", total, ", less than the ", steps,
                          " steps of its warm-up"));
  }
};

/// @p low before the first step, where DeepSpeed sets it, low + (high - low) gamma while warming up
/// (log(1) = 0 gives low once more), and after(i) from then on.
template <class After>
Rate with_warmup(Warmup const& warmup, double low, double high, After const& after) {
  return [=](double i) {
    if (i < 0.0) return low;
    return i < warmup.steps ? low + (high - low) * warmup.gamma(i) : after(i);
  };
}

Rate warmup_lr(ConfigTree const& tree, double learning_rate) {
  Params const params(tree, where,
                      {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type",
                       "last_batch_iteration"});
  refuse_position(params);
  Warmup const warmup(params);
  double const least = params.number("warmup_min_lr", 0.0),
               most = params.number("warmup_max_lr", learning_rate);
  return with_warmup(warmup, least, most, [=](double) { return most; });
}

Rate warmup_decay_lr(ConfigTree const& tree, double) {
  Params const params(tree, where,
                      {"total_num_steps", "warmup_min_lr", "warmup_max_lr", "warmup_num_steps",
                       "warmup_type", "last_batch_iteration"});
  refuse_position(params);
  Warmup const warmup(params);
  double const least = params.number("warmup_min_lr", 0.0),
               most = params.number("warmup_max_lr", 1e-3);
  double const total = static_cast<double>(params.required_integer("total_num_steps", 1));
  warmup.compare(total);
  return with_warmup(warmup, least, most, [=](double i) {
    double const gamma = std::max(0.0, (total - i) / std::max(1.0, total - warmup.steps));
    return least + (most - least) * gamma;
  });
}

Rate warmup_cosine_lr(ConfigTree const& tree, double learning_rate) {
  Params const params(tree, where,
                      {"total_num_steps", "warmup_min_ratio", "warmup_num_steps", "cos_min_ratio",
                       "warmup_type", "last_batch_iteration"});
  refuse_position(params);
  Warmup const warmup(params);
  double const first = params.number("warmup_min_ratio", 0.0),
               last = params.number("cos_min_ratio", 1e-4);
  double const total = static_cast<double>(params.required_integer("total_num_steps", 1));
  warmup.compare(total);
  Rate const ratio = with_warmup(warmup, first, 1.0, [=](double i) {
    double const progress =
        std::min(1.0, (i - warmup.steps + 1.0) / std::max(1.0, total - warmup.steps));
    return std::max(0.0, last + (1.0 - last) * (1.0 + std::cos(std::numbers::pi * progress)) / 2.0);
  });
  return [=](double i) { return i < 0.0 ? 0.0 : learning_rate * ratio(i); };
}

using Make = Rate (*)(ConfigTree const&, double);
constexpr std::array<std::pair<std::string_view, Make>, 5> known{
    {{"LRRangeTest", lr_range_test},
     {"OneCycle", one_cycle},
     {"WarmupLR", warmup_lr},
     {"WarmupDecayLR", warmup_decay_lr},
     {"WarmupCosineLR", warmup_cosine_lr}}};

}  // namespace

Schedule deepspeed_schedule(ConfigTree const& section, double learning_rate) {
  TESSERA_VALIDATE(std::isfinite(learning_rate) && learning_rate >= 0.0, ConfigError,
                   "the optimizer's lr is ", learning_rate,
                   "; it must be a finite number, zero or more");
  Params const outer(section, "scheduler", {"type", "params"});
  auto const* type = section.find("type");
  auto const* params = section.find("params");
  std::string names;
  for (auto const& [name, make] : known) {
    names += concat(names.empty() ? "" : ", ", name);
    if (!type || !(*type == ConfigTree(name))) continue;
    return [rate = make(params ? *params : ConfigTree(), learning_rate)](std::int64_t step) {
      return rate(static_cast<double>(step - 2));
    };
  }
  throw ConfigError(
      concat("scheduler.type is ", type ? type->dump() : "missing", "; known are ", names));
}

std::optional<Schedule> deepspeed_beta1_schedule(ConfigTree const& section) {
  auto const* type = section.find("type");
  if (!type || !(*type == ConfigTree("OneCycle"))) return std::nullopt;
  auto const* params = section.find("params");
  ConfigTree const tree = params ? *params : ConfigTree();
  if (!one_cycle_params(tree).flag("cycle_momentum", true)) return std::nullopt;
  return [momentum = one_cycle_momentum(tree)](std::int64_t step) {
    return momentum(static_cast<double>(step - 2));
  };
}

}  // namespace tessera::optim
