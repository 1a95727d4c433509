#include "tessera/train/step/training_step.hpp"

#include <algorithm>
#include <utility>

#include "tessera/core/clock.hpp"
#include "tessera/optim/schedule.hpp"

namespace tessera::train {

namespace {

/// The timer's call, then the caller's.
std::function<void()> between_layers(TrainingStep::Options const& options) {
  if (!options.timer) return options.between_layers;
  return [timer = options.timer, next = options.between_layers] {
    timer->between_layers();
    if (next) next();
  };
}

}  // namespace

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
  outcome.tokens = predictions(outcome.samples, micro_batches);
  outcome.learning_rate = learning_rate;

  model::PassSettings settings;
  settings.dropout_seed = options_.dropout_seed;
  settings.step = static_cast<std::uint64_t>(step);
  settings.gradient_scale =
      static_cast<float>(engine_.gradient_scale() / static_cast<double>(outcome.tokens));
  settings.recompute = options_.recompute;
  settings.cpu_checkpointing = options_.cpu_checkpointing;
  settings.between_layers = between_layers(options_);

  if (options_.beta1)
    engine_.set_betas((*options_.beta1)(engine_.optimizer_steps() + 1), optim::one_cycle_beta2);
  engine_.begin_step();
  std::vector<model::LossSum> losses;
  for (std::size_t i = 0; i < micro_batches.size(); ++i) {
    int const index = static_cast<int>(i), count = static_cast<int>(micro_batches.size());
    if (micro_batches[i].samples == 0) {
      engine_.begin_micro_step(index, count, zero::MicroStepGradients::are_discarded);
      (void)micro_step(stand_in(), 0, settings);
      continue;
    }
    engine_.begin_micro_step(index, count);
    auto const first_row =
        sampler.first_row(step - 1, index, Rank(context_.mesh.data_coordinate()));
    losses.push_back(micro_step(micro_batches[i], first_row, settings));
  }
  outcome.update = engine_.finish_step(learning_rate, values(losses, seconds_since(started)));
  if (options_.timer) {
    options_.timer->end_step();
    outcome.phases = options_.timer->phases();
  }

  auto const& sums = outcome.update.sums;
  outcome.loss = sums.addends / static_cast<double>(outcome.tokens);
  if (options_.requests) outcome.requests = requests_of(sums.counts, context_.mesh.size());
  outcome.seconds = seconds_since(started);
  outcome.sent = comm::traffic_of_process() - sent_before;
  outcome.graphs = memory::graph_launches_of_process() - graphs_before;
  return outcome;
}

std::vector<data::LoadedBatch> TrainingStep::load(std::int64_t step, data::Sampler const& sampler) {
  if (!loader_ || loader_->sampler_config() != sampler.config())
    loader_ = std::make_unique<data::BatchLoader>(
        sequences_, sampler, Rank(context_.mesh.data_coordinate()), options_.loader);
  return loader_->load(step - 1);
}

/// A sample of any micro-batch, for a rank without one, which takes part in the collectives.
data::LoadedBatch TrainingStep::stand_in() const {
  auto const sequence = sequences_[0];
  return {1, {sequence.begin(), sequence.end()}, {0}};
}

/// What all ranks must know of the step travels with its gradient norm. The host waits for the
/// losses, on a device for the end of the last backward pass.
zero::StepValues TrainingStep::values(std::vector<model::LossSum> const& losses,
                                      double seconds) const {
  zero::StepValues out;
  for (auto const& loss : losses) out.addends.push_back(loss.value());
  if (!options_.requests) return out;
  auto mine = options_.requests();
  mine.seconds = seconds;
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
                                        model::PassSettings const& settings) {
  model::Batch batch{samples.ids.data(), samples.samples, sequences_.length(), first_global_row};
  batch.samples = samples.indices.data();
  if (options_.loss) batch.loss = options_.loss(batch);
  if (options_.timer) options_.timer->begin_passes();
  auto const loss = context_.model.train(batch, settings, engine_, context_.compute);
  if (options_.timer) options_.timer->end_passes();
  return loss;
}

}  // namespace tessera::train
