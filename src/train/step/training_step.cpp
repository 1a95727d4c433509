#include "tessera/train/step/training_step.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "tessera/core/clock.hpp"
#include "tessera/model/layers/documents.hpp"
#include "tessera/optim/schedule.hpp"

namespace tessera::train {

namespace {

constexpr std::int64_t steps_between_device_times = 4;
constexpr std::chrono::minutes passes_deadline{60};

/// The timer's call, then the caller's.
std::function<void()> between_layers(TrainingStep::Options const& options) {
  if (!options.timer) return options.between_layers;
  return [timer = options.timer, next = options.between_layers] {
    timer->between_layers();
    if (next) next();
  };
}

}  // namespace

double ExampleMetrics::predicted_sum() const {
  return std::accumulate(predictions.begin(), predictions.end(), 0.0);
}

model::Batch batch_of(data::LoadedBatch const& loaded) {
  model::Batch batch{loaded.ids.data(), loaded.rows, loaded.sequence, 0};
  batch.samples = loaded.indices.data();
  if (loaded.labels.empty()) return batch;
  batch.labels = loaded.labels.data();
  batch.documents = loaded.documents.data();
  return batch;
}

TrainingStep::TrainingStep(ModelContext context, zero::Engine& engine,
                           data::TokenSequences sequences, Options const& options)
    : context_(context), engine_(engine), sequences_(std::move(sequences)), options_(options) {}

StepOutcome TrainingStep::run(std::int64_t step, data::Sampler& sampler, double learning_rate) {
  auto const started = std::chrono::steady_clock::now();
  auto const sent_before = comm::traffic_of_process();
  auto const graphs_before = memory::graph_launches_of_process();
  StepOutcome outcome;
  if (options_.timer) options_.timer->begin_step();
  auto const micro_batches = load(step, sampler);
  outcome.data_seconds = seconds_since(started);
  outcome.samples = sampler.samples(step - 1);
  if (sequences_.holds_examples()) outcome.examples = count_examples(micro_batches);
  outcome.tokens = options_.preference ? outcome.samples
                   : outcome.examples
                       ? std::max<std::int64_t>(std::llround(outcome.examples->predicted_sum()), 1)
                       : predictions(outcome.samples, micro_batches);
  outcome.learning_rate = learning_rate;

  model::PassSettings settings;
  settings.dropout = !options_.preference;
  settings.dropout_seed = options_.dropout_seed;
  settings.step = static_cast<std::uint64_t>(step);
  settings.gradient_scale =
      static_cast<float>(engine_.gradient_scale() / static_cast<double>(outcome.tokens));
  settings.recompute = options_.recompute;
  settings.cpu_checkpointing = options_.cpu_checkpointing;
  settings.between_layers = between_layers(options_);

  if (options_.beta1)
    engine_.set_betas((*options_.beta1)(engine_.optimizer_steps() + 1), optim::one_cycle_beta2);
  StepChecks const checks{.measures = outcome.examples.has_value(),
                          .verifies = options_.verifier && options_.verifier->due(step)};
  auto const passes_started = Clock::now();
  double const waited_before = memory::seconds_waited();
  Passes passes;
  do {
    engine_.begin_step();
    passes = run_passes(step, sampler, micro_batches, settings, checks);
  } while (checks.verifies && !agrees(step, sampler, settings, passes, checks));
  outcome.own = own_time(step, passes_started, waited_before, outcome.data_seconds);
  outcome.update = engine_.finish_step(learning_rate,
                                       values(passes.losses, outcome.own, seconds_since(started)));
  if (options_.timer) {
    options_.timer->end_step();
    outcome.phases = options_.timer->phases();
  }

  if (outcome.examples) add_metrics(*outcome.examples, passes.metrics);
  if (options_.preference) add_preferences(*outcome.examples);
  auto const& sums = outcome.update.sums;
  outcome.loss = sums.addends / static_cast<double>(outcome.tokens);
  if (options_.requests) outcome.requests = requests_of(sums.counts, context_.mesh.size());
  outcome.seconds = seconds_since(started);
  outcome.sent = comm::traffic_of_process() - sent_before;
  outcome.graphs = memory::graph_launches_of_process() - graphs_before;
  return outcome;
}

/// Enqueues the passes of all micro-steps. The verifier hashes the gradients of the first one.
TrainingStep::Passes TrainingStep::run_passes(std::int64_t step, data::Sampler const& sampler,
                                              std::vector<data::LoadedBatch> const& micro_batches,
                                              model::PassSettings const& settings,
                                              StepChecks checks) {
  Passes out;
  out.metrics.resize(micro_batches.size());
  preferences_.assign(micro_batches.size(), {});
  for (std::size_t i = 0; i < micro_batches.size(); ++i) {
    int const index = static_cast<int>(i), count = static_cast<int>(micro_batches.size());
    bool const has_samples = micro_batches[i].samples > 0;
    engine_.begin_micro_step(
        index, count,
        has_samples ? zero::MicroStepGradients::count : zero::MicroStepGradients::are_discarded);
    memory::ParamProvider& params =
        checks.verifies && i == 0 ? options_.verifier->first_micro_step() : engine_;
    if (options_.timer) options_.timer->begin_passes();
    auto loss =
        has_samples
            ? micro_step(micro_batches[i],
                         sampler.first_row(step - 1, index, Rank(context_.mesh.data_coordinate())),
                         settings, checks.measures ? &out.metrics[i] : nullptr, params)
            : micro_step(stand_in(), 0, settings, nullptr, params);
    if (options_.timer) options_.timer->end_passes();
    if (i == 0) out.first = loss;
    if (!has_samples) continue;
    out.losses.push_back(std::move(loss));
    if (options_.preference) preferences_[i] = options_.preference->sums();
  }
  return out;
}

/// Whether other ranks compute the same for the first micro-step. Collective.
bool TrainingStep::agrees(std::int64_t step, data::Sampler const& sampler,
                          model::PassSettings settings, Passes const& passes, StepChecks checks) {
  settings.between_layers = {};
  return options_.verifier->agrees(
      step, *passes.first, [&](int of_rank, memory::ParamProvider& params) {
        auto const samples = loader_->first_of(step - 1, Rank(of_rank));
        model::TokenMetrics unused;
        return samples.samples == 0
                   ? micro_step(stand_in(), 0, settings, nullptr, params)
                   : micro_step(samples, sampler.first_row(step - 1, 0, Rank(of_rank)), settings,
                                checks.measures ? &unused : nullptr, params);
      });
}

/// The queue of a host computes in this thread, which waits for what other ranks send. The passes
/// of a device wait for no other rank below stage 3; the host waits for their end at some steps
/// only.
OwnTime TrainingStep::own_time(std::int64_t step, Clock::time_point passes_started,
                               double waited_before, double input) {
  if (context_.compute.kind() == memory::QueueKind::inline_host) {
    double const waited = memory::seconds_waited() - waited_before;
    return {std::max(0.0, seconds_since(passes_started) - waited), input};
  }
  if (zero::stage_of(engine_.config().partition) == 3 || !options_.requests) return {};
  if (step % steps_between_device_times == 0) {
    context_.compute.record().wait("the passes of the step", passes_deadline);
    device_passes_ = seconds_since(passes_started);
  }
  return {device_passes_, input};
}

std::vector<data::LoadedBatch> TrainingStep::load(std::int64_t step, data::Sampler const& sampler) {
  if (!loader_ || loader_->sampler_config() != sampler.config())
    loader_ = std::make_unique<data::BatchLoader>(
        sequences_, sampler, Rank(context_.mesh.data_coordinate()), options_.loader);
  return loader_->load(step - 1);
}

/// A sample of any micro-batch, for a rank without one, which takes part in the collectives.
data::LoadedBatch TrainingStep::stand_in() const { return data::read_batch(sequences_, {0}); }

/// What all ranks read: per micro-step the predictions, and the tokens with and without padding.
ExampleMetrics TrainingStep::count_examples(
    std::vector<data::LoadedBatch> const& micro_batches) const {
  std::vector<double> values(micro_batches.size() + 2);
  for (std::size_t i = 0; i < micro_batches.size(); ++i) {
    auto const& batch = micro_batches[i];
    values[i] =
        static_cast<double>(model::count_labels(batch.labels.data(), batch.rows, batch.sequence));
    values[micro_batches.size()] += static_cast<double>(batch.tokens);
    values[micro_batches.size() + 1] += static_cast<double>(batch.rows * batch.sequence);
  }
  comm::all_reduce_values(context_.data_ranks(), values, comm::ReduceOp::sum);
  ExampleMetrics out;
  out.positions = std::llround(values.back());
  out.tokens = std::llround(values[micro_batches.size()]);
  values.resize(micro_batches.size());
  out.predictions = std::move(values);
  return out;
}

/// Takes, as SFTTrainer does, the mean over the micro-steps of what all ranks measured in each.
void TrainingStep::add_metrics(ExampleMetrics& to,
                               std::vector<model::TokenMetrics> const& metrics) const {
  std::size_t const count = metrics.size();
  std::vector<double> values(2 * count);
  for (std::size_t i = 0; i < count; ++i) {
    if (!metrics[i].hits) continue;
    values[i] = metrics[i].hits->value();
    values[count + i] = metrics[i].entropy->value();
  }
  comm::all_reduce_values(context_.data_ranks(), values, comm::ReduceOp::sum);
  for (std::size_t i = 0; i < count; ++i) {
    double const predicted = to.predictions[i];
    if (predicted == 0.0) continue;
    to.accuracy += values[i] / predicted / static_cast<double>(count);
    to.entropy += values[count + i] / predicted / static_cast<double>(count);
  }
}

void TrainingStep::add_preferences(ExampleMetrics& to) const {
  std::vector<double> values;
  for (auto const& sums : preferences_)
    for (double const value : sums.values()) values.push_back(value);
  comm::all_reduce_values(context_.data_ranks(), values, comm::ReduceOp::sum);
  auto const micro_steps = static_cast<double>(preferences_.size());
  auto& mean = to.preferences.emplace();
  to.accuracy = 0.0;
  for (std::size_t i = 0; i < preferences_.size(); ++i) {
    auto const sums = PreferenceSums::of(values.data() + i * PreferenceSums::count);
    to.accuracy += sums.accuracy() / micro_steps;
    for (std::size_t k = 0; k < mean.values.size(); ++k)
      mean.values[k] += sums.means().values[k] / micro_steps;
  }
}

/// What all ranks must know of the step travels with its gradient norm. On a device the losses go
/// there without the host.
zero::StepValues TrainingStep::values(std::vector<model::LossSum> const& losses, OwnTime const& own,
                                      double seconds) const {
  zero::StepValues out;
  for (auto const& loss : losses)
    if (auto const* const on_device = loss.on_device())
      out.device_addends.push_back(on_device);
    else
      out.addends.push_back(loss.value());
  if (!options_.requests) return out;
  auto mine = options_.requests();
  mine.seconds = seconds;
  mine.own_seconds = own.total();
  out.counts = counts_of(mine);
  return out;
}

/// Counts the predictions of @p samples samples on all ranks.
std::int64_t TrainingStep::predictions(std::int64_t samples,
                                       std::vector<data::LoadedBatch> const& micro_batches) const {
  auto const count = [&](std::int32_t const* tokens, std::int64_t rows) {
    return context_.model.predictions({tokens, rows, sequences_.length()});
  };
  if (!context_.model.predictions_vary()) return count(nullptr, samples);
  std::int64_t own = 0;
  for (auto const& batch : micro_batches) own += count(batch.ids.data(), batch.samples);
  return std::max<std::int64_t>(
      comm::all_reduce_value(context_.data_ranks(), own, comm::ReduceOp::sum), 1);
}

model::LossSum TrainingStep::micro_step(data::LoadedBatch const& samples,
                                        std::int64_t first_global_row,
                                        model::PassSettings const& settings,
                                        model::TokenMetrics* metrics,
                                        memory::ParamProvider& params) {
  model::Batch batch = batch_of(samples);
  batch.first_global_row = first_global_row;
  batch.metrics = metrics;
  if (options_.loss) batch.loss = options_.loss(batch);
  if (options_.preference) options_.preference->begin(batch);
  return context_.model.train(batch, settings, params, context_.compute);
}

}  // namespace tessera::train
