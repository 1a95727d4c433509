#include "tessera/optim/schedule.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "detail/params.hpp"
#include "tessera/core/error.hpp"

namespace tessera::optim {
/// The schedules are factors of the learning rate at the 0-based step i.
namespace {

using detail::Params;
using std::numbers::pi;

constexpr auto kwargs_name = "lr_scheduler_kwargs";

/// What every schedule knows.
struct Span {
  double learning_rate;
  double warmup, total;
  double decay_steps() const { return std::max(1.0, total - warmup); }
  /// 0 at the end of the warm-up, 1 at the last step.
  double progress(double i) const { return (i - warmup) / decay_steps(); }
};
using Factor = std::function<double(double i)>;

double half_cosine(double turns) { return 0.5 * (1.0 + std::cos(pi * turns)); }

/// i / warmup during the warm-up, then @p rest.
Factor after_warmup(Span const& s, Factor rest) {
  return [s, rest = std::move(rest)](double i) {
    return i < s.warmup ? i / std::max(1.0, s.warmup) : rest(i);
  };
}

Factor constant(Span const&, ConfigTree const& kwargs) {
  Params const none(kwargs, kwargs_name, {});
  return [](double) { return 1.0; };
}
Factor constant_with_warmup(Span const& s, ConfigTree const& kwargs) {
  return after_warmup(s, constant(s, kwargs));
}

Factor linear(Span const& s, ConfigTree const& kwargs) {
  Params const none(kwargs, kwargs_name, {});
  return after_warmup(s, [s](double i) { return std::max(0.0, (s.total - i) / s.decay_steps()); });
}

Factor cosine(Span const& s, ConfigTree const& kwargs) {
  double const cycles = Params(kwargs, kwargs_name, {"num_cycles"}).number("num_cycles", 0.5);
  return after_warmup(s, [s, cycles](double i) {
    return std::max(0.0, half_cosine(cycles * 2.0 * s.progress(i)));
  });
}

Factor cosine_with_restarts(Span const& s, ConfigTree const& kwargs) {
  double const cycles = Params(kwargs, kwargs_name, {"num_cycles"}).number("num_cycles", 1.0);
  return after_warmup(s, [s, cycles](double i) {
    double const progress = s.progress(i);
    return progress >= 1.0 ? 0.0 : std::max(0.0, half_cosine(std::fmod(cycles * progress, 1.0)));
  });
}

Factor polynomial(Span const& s, ConfigTree const& kwargs) {
  Params const params(kwargs, kwargs_name, {"lr_end", "power"});
  double const end = params.number("lr_end", 1e-7), power = params.number("power", 1.0);
  TESSERA_VALIDATE(s.learning_rate > end, ConfigError, "learning_rate is ", s.learning_rate,
                   " and ", kwargs_name, ".lr_end is ", end,
                   "; a polynomial schedule falls, so lr_end must be the smaller one");
  return after_warmup(s, [s, end, power](double i) {
    if (i > s.total || s.total <= s.warmup) return end / s.learning_rate;
    double const remaining = 1.0 - (i - s.warmup) / (s.total - s.warmup);
    return ((s.learning_rate - end) * std::pow(remaining, power) + end) / s.learning_rate;
  });
}

Factor inverse_sqrt(Span const& s, ConfigTree const& kwargs) {
  Params const params(kwargs, kwargs_name, {"timescale"});
  double const scale = static_cast<double>(
      params.integer("timescale", 1, s.warmup > 0 ? static_cast<std::int64_t>(s.warmup) : 10'000));
  return after_warmup(
      s, [s, scale](double i) { return 1.0 / std::sqrt((i + scale - s.warmup) / scale); });
}

double least_ratio(Span const& s, Params const& params) {
  auto const rate = params.number("min_lr"), ratio = params.number("min_lr_rate");
  TESSERA_VALIDATE(rate.has_value() != ratio.has_value(), ConfigError, kwargs_name,
                   " must have exactly one of min_lr and min_lr_rate");
  TESSERA_VALIDATE(ratio || s.learning_rate > 0.0, ConfigError, "learning_rate is 0; ", kwargs_name,
                   ".min_lr cannot be a part of it");
  return ratio ? *ratio : *rate / s.learning_rate;
}

Factor cosine_with_min_lr(Span const& s, ConfigTree const& kwargs) {
  Params const params(kwargs, kwargs_name, {"num_cycles", "min_lr", "min_lr_rate"});
  double const cycles = params.number("num_cycles", 0.5), least = least_ratio(s, params);
  return after_warmup(s, [=](double i) {
    return std::max(0.0, half_cosine(cycles * 2.0 * s.progress(i)) * (1.0 - least) + least);
  });
}

/// Starts its warm-up above zero and reaches its end one step earlier than the others.
Factor cosine_warmup_with_min_lr(Span const& s, ConfigTree const& kwargs) {
  Params const params(kwargs, kwargs_name,
                      {"num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"});
  double const cycles = params.number("num_cycles", 0.5), least = least_ratio(s, params);
  auto const first = params.number("warmup_lr_rate");
  return [=](double i) {
    if (i < s.warmup && !first) return (i + 1.0) / std::max(1.0, s.warmup);
    if (i < s.warmup) return *first + (1.0 - *first) * i / std::max(1.0, s.warmup - 1.0);
    double const progress = (i - s.warmup + 1.0) / s.decay_steps();
    return std::max(0.0, half_cosine(cycles * 2.0 * progress) * (1.0 - least) + least);
  };
}

/// A curve of warmup_stable_decay: falls from 1 to 0 as x goes from 0 to 1.
double fall(std::string const& curve, double x, double cycles) {
  if (curve == "linear") return 1.0 - x;
  return curve == "cosine" ? half_cosine(cycles * 2.0 * x) : 1.0 - std::sqrt(x);
}

Factor warmup_stable_decay(Span const& s, ConfigTree const& kwargs) {
  Params const params(kwargs, kwargs_name,
                      {"num_decay_steps", "num_stable_steps", "warmup_type", "decay_type",
                       "min_lr_ratio", "num_cycles"});
  auto const curves = {std::string_view("linear"), std::string_view("cosine"),
                       std::string_view("1-sqrt")};
  auto const rise = params.text("warmup_type", curves, "linear"),
             decline = params.text("decay_type", curves, "cosine");
  double const decay = static_cast<double>(params.required_integer("num_decay_steps", 0));
  auto const stable = params.integer("num_stable_steps", 0);
  double const decay_begin = stable ? s.warmup + static_cast<double>(*stable) : s.total - decay;
  double const least = params.number("min_lr_ratio", 0.0),
               cycles = params.number("num_cycles", 0.5);
  return [=](double i) {
    double shape = 0.0;
    if (i < s.warmup) {
      shape = fall(rise, 1.0 - i / s.warmup, 0.5);
    } else if (i < decay_begin) {
      return 1.0;
    } else if (i < decay_begin + decay) {
      shape = fall(decline, (i - decay_begin) / std::max(1.0, decay), cycles);
    } else {
      return least;
    }
    return std::max(0.0, shape * (1.0 - least) + least);
  };
}

using MakeFactor = Factor (*)(Span const&, ConfigTree const&);
constexpr std::array<std::pair<std::string_view, MakeFactor>, 10> hf_schedules{
    {{"linear", linear},
     {"cosine", cosine},
     {"cosine_with_restarts", cosine_with_restarts},
     {"polynomial", polynomial},
     {"constant", constant},
     {"constant_with_warmup", constant_with_warmup},
     {"inverse_sqrt", inverse_sqrt},
     {"cosine_with_min_lr", cosine_with_min_lr},
     {"cosine_warmup_with_min_lr", cosine_warmup_with_min_lr},
     {"warmup_stable_decay", warmup_stable_decay}}};

}  // namespace

Schedule hf_schedule(std::string const& type, double learning_rate, std::int64_t warmup_steps,
                     std::int64_t total_steps, ConfigTree const& kwargs) {
  TESSERA_VALIDATE(std::isfinite(learning_rate) && learning_rate >= 0.0, ConfigError,
                   "learning_rate is ", learning_rate,
                   "; it must be a finite number, zero or more");
  TESSERA_VALIDATE(warmup_steps >= 0 && total_steps >= 0, ConfigError, "the schedule has ",
                   warmup_steps, " warm-up steps of ", total_steps, "; neither can be negative");
  std::string names;
  for (auto const& [name, make] : hf_schedules) {
    names += concat(names.empty() ? "" : ", ", name);
    if (name != type) continue;
    Span const span{learning_rate, static_cast<double>(warmup_steps),
                    static_cast<double>(total_steps)};
    return [learning_rate, factor = make(span, kwargs)](std::int64_t step) {
      return learning_rate * factor(static_cast<double>(step - 1));
    };
  }
  bool const needs_metric = type == "reduce_lr_on_plateau" || type == "greedy";
  throw ConfigError(concat(
      "lr_scheduler_type is ", type,
      needs_metric ? ", which follows evaluation results; schedules here depend on the step only"
                   : ", which is not known",
      "; known are ", names));
}

}  // namespace tessera::optim
