#include "tessera/train/loop/model_export.hpp"

#include <algorithm>
#include <cmath>

#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/interchange/model_weights.hpp"
#include "tessera/checkpoint/save/restore.hpp"
#include "tessera/checkpoint/save/save_model.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/text.hpp"
#include "tessera/train/loop/save_policy.hpp"
#include "tessera/zero/layout/saved_states.hpp"

namespace tessera::train {
namespace fs = std::filesystem;
namespace {

checkpoint::SaveModelRequest request_of(JobContext const& job, TrainingRun const& run) {
  bool const is_adapter = run.source.lora.has_value();
  checkpoint::SaveModelRequest request{
      .directory = job.arguments.output_dir,
      .plan = run.engine->plan(),
      .units = is_adapter ? run.trained.units : run.model->units()};
  if (run.config.gather_16bit_weights) request.dtype = run.config.dtype;
  if (is_adapter) {
    request.what = checkpoint::WeightsOf::adapter;
    request.model_config = run.frozen.at("adapter_config");
  } else {
    request.model_config = run.model->config();
    request.frozen_plan = &run.engine->frozen_plan();
    request.frozen_shard = [&engine = *run.engine](zero::UnitIndex unit) {
      return engine.frozen_shard(unit);
    };
  }
  if (job.is_root()) request.extra_files = model_companions(run);
  return request;
}

/// ", tokenizer.json, chat_template.jinja"
std::string names_of(std::vector<fs::path> const& files) {
  std::string out;
  for (auto const& file : files) out += ", " + checkpoint::companion_name(file).string();
  return out;
}

}  // namespace

std::vector<fs::path> model_companions(TrainingRun const& run) {
  using checkpoint::Companions;
  auto files = run.data.tokenizer ? run.data.tokenizer->files() : std::vector<fs::path>{};
  auto const add = [&](fs::path const& directory, Companions which) {
    for (auto& file : checkpoint::companion_files(directory, which))
      if (std::ranges::find(files, file.filename(), &fs::path::filename) == files.end())
        files.push_back(std::move(file));
  };
  if (!files.empty()) add(files.front().parent_path(), Companions::tokenizer);
  if (!run.source.weights_directory.empty()) add(run.source.weights_directory, Companions::model);
  return files;
}

void require_room(JobContext const& job, TrainingRun const& run) {
  auto const& arguments = job.arguments;
  std::int64_t const first = run.state.first_step;
  bool const saves =
      arguments.save_strategy != config::Interval::no && first <= run.sampler->total_steps();
  auto const save = save_request(job, run, first, SaveContent::regular);
  checkpoint::require_room(request_of(job, run), saves ? &save : nullptr,
                           checkpoint::layers_of(zero::saved_states(run.engine->config())),
                           job.comm);
}

void export_model(JobContext const& job, TrainingRun const& run, std::int64_t last_saved_step) {
  auto views = run.engine->state();
  auto const weights = std::find_if(views.begin(), views.end(), [](auto const& view) {
    return view.name == optim::master_weights_name;
  });
  try {
    auto const request = request_of(job, run);
    auto const saved = checkpoint::save_model(request, *weights, job.comm);
    if (job.is_root() && !saved.nonfinite.empty())
      log::warning(concat("values of the model in ", request.directory.string(),
                          " are beyond the range of ", name_of(request.dtype), ": ",
                          checkpoint::text_of(saved.nonfinite)));
  } catch (IoError const& e) {
    throw IoError(concat("the trained model could not be written: ", e.what(),
                         "; then run the same command again: it continues ",
                         last_saved_step < 0 ? "from the start, for no checkpoint was saved"
                                             : concat("from step ", last_saved_step)));
  }
  if (job.is_root())
    log::info(concat("wrote the ", run.source.lora ? "adapter" : "model", " to ",
                     job.arguments.output_dir.string(), " (",
                     run.source.lora ? "adapter_config.json" : "config.json", ", safetensors",
                     names_of(model_companions(run)), ")"));
}

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
