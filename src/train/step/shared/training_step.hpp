#pragma once
/// One optimizer step: its micro-steps, the update, and the loss over all ranks.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tessera/comm/base/traffic.hpp"
#include "tessera/data/sampling/batch_loader.hpp"
#include "tessera/data/sampling/sampler.hpp"
#include "tessera/data/sequences/text_dataset.hpp"
#include "tessera/memory/stream_queue.hpp"
#include "tessera/optim/schedule.hpp"
#include "tessera/train/step/model_context.hpp"
#include "tessera/train/step/outcome.hpp"
#include "tessera/train/step/pass_timer.hpp"
#include "tessera/train/step/preference.hpp"
#include "tessera/train/step/step_requests.hpp"
#include "tessera/train/step/verification.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::train {

/// The rows of a micro-batch as the model takes them; they point into @p loaded.
model::Batch batch_of(data::LoadedBatch const& loaded);

class TrainingStep {
 public:
  struct Options {
    std::int64_t micro_batch_size = 1;
    std::uint64_t dropout_seed = 42;
    Recompute recompute = Recompute::none;
    bool cpu_checkpointing = false;
    std::function<void()> between_layers{};  ///< see model::PassSettings
    std::optional<optim::Schedule> beta1{};  ///< by optimizer step; none: the optimizer's
    PassTimer* timer = nullptr;              ///< null: nothing is timed
    /// The loss of a micro-batch, which outlives the step; null: cross-entropy of the next token.
    std::function<model::LogitLoss*(model::Batch const& batch)> loss{};
    Preference* preference = nullptr;  ///< the loss of pairs; null: samples are no pairs
    data::LoaderOptions loader{};
    /// What this rank asks for; null: the step asks nobody.
    std::function<StepRequests()> requests{};
    Verifier* verifier = nullptr;  ///< null: no step is verified
  };
  /// @param context  `weights` is @p engine
  TrainingStep(ModelContext context, zero::Engine& engine, data::TokenSequences sequences,
               Options const& options);

  /// Trains on the samples of step @p step, counted from 1. Collective.
  StepOutcome run(std::int64_t step, data::Sampler& sampler, double learning_rate);

 private:
  using Clock = std::chrono::steady_clock;
  /// What the passes of a step leave.
  struct Passes {
    std::vector<model::LossSum> losses{};        ///< losses of micro-batches with samples
    std::vector<model::TokenMetrics> metrics{};  ///< by micro-step
    std::optional<model::LossSum> first{};  ///< loss of the first micro-step, even without samples
  };
  /// What a step looks at besides its loss.
  struct StepChecks {
    bool measures = false;  ///< TokenMetrics of its examples
    bool verifies = false;
  };
  Passes run_passes(std::int64_t step, data::Sampler const& sampler,
                    std::vector<data::LoadedBatch> const& micro_batches,
                    model::PassSettings const& settings, StepChecks checks);
  bool agrees(std::int64_t step, data::Sampler const& sampler, model::PassSettings settings,
              Passes const& passes, StepChecks checks);
  OwnTime own_time(std::int64_t step, Clock::time_point passes_started, double waited_before,
                   double input);
  data::LoadedBatch stand_in() const;
  zero::StepValues values(std::vector<model::LossSum> const& losses, OwnTime const& own,
                          double seconds) const;
  std::vector<data::LoadedBatch> load(std::int64_t step, data::Sampler const& sampler);
  std::int64_t predictions(std::int64_t samples,
                           std::vector<data::LoadedBatch> const& micro_batches) const;
  model::LossSum micro_step(data::LoadedBatch const& samples, std::int64_t first_global_row,
                            model::PassSettings const& settings, model::TokenMetrics* metrics,
                            memory::ParamProvider& params);
  ExampleMetrics count_examples(std::vector<data::LoadedBatch> const& micro_batches) const;
  void add_metrics(ExampleMetrics& to, std::vector<model::TokenMetrics> const& metrics) const;
  void add_preferences(ExampleMetrics& to) const;

  ModelContext context_;
  zero::Engine& engine_;
  data::TokenSequences sequences_;
  Options options_;
  std::unique_ptr<data::BatchLoader> loader_;
  std::vector<PreferenceSums> preferences_;  ///< sums of this rank by micro-step
  double device_passes_ = 0.0;  ///< seconds of the last passes on a device that were measured
};

}  // namespace tessera::train
