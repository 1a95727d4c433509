#include "tessera/train/loop/update_watch.hpp"

#include <cmath>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::train {
namespace {

/// Without a dynamic loss scale a skipped step repeats unless other data cures it: this many in a
/// row may be bad luck with the data.
constexpr std::int64_t skips_by_default = 10;
/// The forward pass does not depend on the loss scale. With a dynamic one the next batches get a
/// chance, because overflows are part of its search.
constexpr std::int64_t losses_by_default = 2;

}  // namespace

UpdateWatch::UpdateWatch(Options options, TrainingState& state)
    : options_(std::move(options)), state_(state) {}

/// A dynamic scale that finds no finite gradients reaches its minimum, where the scaler ends the
/// run.
bool UpdateWatch::tolerated() const {
  std::int64_t const skipped = state_.skipped_in_a_row;
  if (options_.max_skipped_steps) return skipped <= *options_.max_skipped_steps;
  if (losses_in_a_row_ > (scale_can_help() ? losses_by_default : 0)) return false;
  return scale_can_help() || skipped <= skips_by_default;
}

void UpdateWatch::count(StepOutcome const& outcome) {
  bool const skipped = outcome.update.skipped;
  state_.skipped_in_a_row = skipped ? state_.skipped_in_a_row + 1 : 0;
  if (!skipped) ++state_.applied_steps;
  losses_in_a_row_ = std::isfinite(outcome.loss) ? 0 : losses_in_a_row_ + 1;
}

void UpdateWatch::require_progress(std::int64_t step, StepOutcome const& outcome) const {
  if (!std::isfinite(outcome.loss) && (!outcome.update.skipped || !tolerated()))
    throw ConfigError(concat("the loss of step ", step, " is ", number_text(outcome.loss),
                             " (gradient norm ", number_text(outcome.update.grad_norm),
                             ", learning rate ", outcome.learning_rate,
                             "): training has diverged. ", advice()));
  TESSERA_VALIDATE(
      tolerated(), ConfigError, "the updates of the last ", state_.skipped_in_a_row,
      plural(state_.skipped_in_a_row, " step"), " up to step ", step,
      " were skipped because gradients are not finite",
      options_.dtype == Dtype::fp16 ? concat(" at loss scale ", outcome.update.loss_scale) : "",
      "; --max_skipped_steps sets how many are tolerated. ", advice());
}

void UpdateWatch::training_done(std::int64_t total_steps) const {
  TESSERA_VALIDATE(total_steps == 0 || state_.applied_steps > 0, ConfigError, "all ", total_steps,
                   plural(total_steps, " step"),
                   " were skipped because gradients are not finite: the model is unchanged and is "
                   "not exported. ",
                   advice());
}

std::string UpdateWatch::advice() const {
  auto const& weights = options_.weights;
  bool const half = options_.dtype == Dtype::fp16;
  if (half && weights.stored_dtype == Dtype::bf16)
    return concat(weights.problem.empty() ? "" : weights.problem + ". ", "The weights in ",
                  weights.directory,
                  " are stored as bf16, whose range fp16 does not have: train with --bf16");
  if (!weights.problem.empty()) return weights.problem;
  std::string const advice =
      concat("Try a lower --learning_rate, more --warmup_steps, or --max_grad_norm 1",
             half                            ? ", or --bf16"
             : options_.dtype == Dtype::bf16 ? ", or fp32"
                                             : "");
  if (half && !options_.loss_scaler.dynamic)
    return concat("The static loss scale is ", options_.loss_scaler.static_scale,
                  ": use a dynamic one (fp16.loss_scale 0) or a smaller one. ", advice);
  return advice;
}

}  // namespace tessera::train
