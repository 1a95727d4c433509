#include "tessera/train/loop/best_model.hpp"

#include <cmath>

#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/save/restore.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/text.hpp"

namespace tessera::train {

double BestModel::value_of(EvaluationResult const& result) const {
  switch (options_.metric) {
    case Metric::accuracy:
      return result.accuracy.value_or(NAN);
    case Metric::perplexity:
      return result.perplexity;
    case Metric::loss:
      break;
  }
  return result.loss;
}

bool BestModel::better(double value, double than) const {
  return options_.better == Better::lower ? value < than : value > than;
}

/// The patience counts against the best evaluation before this one, as Trainer's callback does.
bool BestModel::evaluated(std::int64_t step, EvaluationResult const& result) {
  double const value = value_of(result);
  auto& best = state_.best;
  bool const first = best.step < 0;
  bool const improves = !std::isnan(value) && (first || better(value, best.metric));
  bool const enough = improves && (first || std::abs(value - best.metric) > options_.threshold);
  best.evaluations_without_improvement = enough ? 0 : best.evaluations_without_improvement + 1;
  if (improves) best.metric = value, best.step = step;
  return improves;
}

bool BestModel::should_stop() const {
  return options_.patience && state_.best.evaluations_without_improvement >= *options_.patience;
}

std::string BestModel::best_text() const {
  if (state_.best.step < 0) return "none";
  char const* const name = options_.metric == Metric::loss         ? "eval_loss "
                           : options_.metric == Metric::perplexity ? "perplexity "
                                                                   : "eval_accuracy ";
  return concat(name, fixed_text(state_.best.metric, 4), " of step ", state_.best.step);
}

std::optional<BestModel::Options> best_model_options(config::TrainingArguments const& a) {
  if (a.metric_for_best_model.empty()) return std::nullopt;
  BestModel::Options out;
  if (a.metric_for_best_model.ends_with("perplexity")) out.metric = BestModel::Metric::perplexity;
  if (a.metric_for_best_model.ends_with("accuracy")) out.metric = BestModel::Metric::accuracy;
  if (a.greater_is_better.value_or(out.metric == BestModel::Metric::accuracy))
    out.better = BestModel::Better::higher;
  out.patience = a.early_stopping_patience;
  out.threshold = a.early_stopping_threshold;
  return out;
}

void load_best_model(JobContext const& job, TrainingRun& run, std::int64_t last_step) {
  auto const& evaluated = run.state.best;
  std::int64_t const best = evaluated.saved_step;
  if (evaluated.step < 0 || evaluated.step == last_step) return;
  if (best != evaluated.step && job.is_root())
    log::info(concat("--load_best_model_at_end: the best evaluation is of step ", evaluated.step,
                     ", which was not saved; a smaller --save_steps keeps such steps"));
  if (best < 0 && job.is_root())
    log::warning(
        "--load_best_model_at_end: no saved step had the best evaluation so far; the last "
        "weights are exported");
  if (best < 0 || best == last_step) return;
  auto const directory = job.arguments.output_dir / "checkpoints" / checkpoint::step_name(best);
  auto const problem =
      comm::broadcast_from_root(job.comm, [&] { return checkpoint::find_problem(directory); });
  if (!problem.empty()) {
    if (job.is_root())
      log::warning(concat("--load_best_model_at_end: the checkpoint of the best step ", best,
                          " cannot be loaded (", problem, "); the last weights are exported"));
    return;
  }
  auto const manifest = checkpoint::read_manifest(directory, job.comm);
  auto states = run.engine->state();
  checkpoint::restore(manifest, run.engine->plan(), states, job.comm);
  TrainingState at_best;
  auto const engine = read_trainer_state(manifest.trainer_state, at_best);
  run.engine->load_state(engine.optimizer_steps, engine.scaler);
  if (job.is_root())
    log::info(concat("loaded the best checkpoint, of step ", best, ", from ", directory.string()));
}

}  // namespace tessera::train
