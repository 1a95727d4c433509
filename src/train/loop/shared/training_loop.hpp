#pragma once
/// The training loop: optimizer steps with logging, evaluation and saves between them, until the
/// last step or a request to stop.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tessera/data/sampling/sampler.hpp"
#include "tessera/optim/schedule.hpp"
#include "tessera/train/loop/model_export.hpp"
#include "tessera/train/loop/save_policy.hpp"
#include "tessera/train/loop/update_watch.hpp"
#include "tessera/train/report/run_log.hpp"
#include "tessera/train/report/status_file.hpp"
#include "tessera/train/step/deadline.hpp"
#include "tessera/train/step/evaluator.hpp"
#include "tessera/train/step/event_schedule.hpp"
#include "tessera/train/step/step_requests.hpp"
#include "tessera/train/step/stop_request.hpp"
#include "tessera/train/step/stragglers.hpp"
#include "tessera/train/step/training_state.hpp"
#include "tessera/train/step/training_step.hpp"

namespace tessera::train {

class TrainingLoop {
 public:
  struct Options {
    EventSchedule evaluate, save;
    bool evaluate_on_start = false;
    UpdateWatch::Options updates;
    std::int64_t tokens_per_sample = 0;
    std::string output_dir;                    ///< for messages
    std::optional<BestModel::Options> best{};  ///< none: no evaluation is compared
    /// Called after the log line of a step.
    std::function<void(std::int64_t step, StepOutcome const&)> after_step{};
    /// Instead of TrainingStep::run() and Evaluator::evaluate().
    std::function<StepOutcome(std::int64_t step, double learning_rate)> training_step{};
    std::function<EvaluationResult(std::int64_t step)> evaluation{};
  };
  /// Outlive the loop.
  struct Parts {
    comm::Collectives& comm;
    TrainingStep& step;
    data::Sampler& sampler;
    optim::Schedule const& schedule;
    TrainingState& state;
    Evaluator* evaluator;  ///< null: no evaluation
    SavePolicy& saves;
    RunLog& log;
    StatusFile& status;
    Deadline& deadline;
    StopCheck& stop_check;  ///< the passes of `step` and `evaluator` call it
    /// What this rank asks for after a step that asked nobody.
    std::function<StepRequests()> local_requests;
    StragglerWatch* stragglers = nullptr;  ///< null: slow ranks are not looked for
  };
  TrainingLoop(Options options, Parts parts);

  /// Runs the steps from state.first_step on. Collective.
  /// @return stopped_early after a stop request, with a checkpoint of the last complete step; io
  /// when that checkpoint could not be written
  /// @throws ConfigError when the loss is not finite, when too many steps in a row are skipped, or
  /// when no step of the run has changed the weights
  Outcome run();

  /// Evaluates and logs the result. @pre there is an evaluator
  EvaluationResult evaluate(std::int64_t step);
  /// The last step that is complete.
  std::int64_t last_step() const { return complete_; }

 private:
  Outcome run_steps();
  StepOutcome train(std::int64_t step);
  StepRequests exchange_requests(StepOutcome const& outcome);
  StepRequests requests_after(StepOutcome const& outcome);
  void log_step(std::int64_t step, StepOutcome const& outcome);
  void log_stragglers(std::vector<Straggler> const& named);
  void run_events(std::int64_t step);
  bool stops_early(std::int64_t step);
  void save(std::int64_t step, SaveMode mode, SaveContent content);
  Outcome finish(std::int64_t step);
  Outcome stop(std::int64_t step, int request);
  Outcome stop_before_first_step(int request);
  bool makes_no_progress(std::int64_t step, int request);
  Outcome no_progress(std::string const& stopped) const;

  Options options_;
  Parts parts_;
  UpdateWatch watch_;
  std::optional<BestModel> best_;
  std::int64_t complete_ = 0;          ///< last complete step
  std::string optimizer_phase_;        ///< empty: it has none
  double seconds_of_last_step_ = 0.0;  ///< equal on all ranks
  std::vector<int> slow_ranks_;        ///< as status.json has them
};

}  // namespace tessera::train
