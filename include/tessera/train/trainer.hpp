#pragma once
/// The job of tessera-train: sets up a run, then trains, evaluates and generates.

#include "tessera/train/deadline.hpp"
#include "tessera/train/training_loop.hpp"
#include "tessera/train/training_run.hpp"

namespace tessera::train {

class Trainer {
 public:
  /// Collective over all ranks of job.comm.
  explicit Trainer(JobContext const& job) : job_(job) {}
  /// The end of the job's time; the run saves and ends with 75 before it. Rank 0's counts.
  void set_deadline(Deadline deadline) { deadline_ = deadline; }
  /// @return done; stopped_early or io after a stop request; io when the last checkpoint is missing
  Outcome run();

 private:
  void open_run_files(TrainingRun const& run, RunLog& log) const;
  /// What the training loop calls between and inside its steps.
  struct Between {
    StopCheck& stop_check;
    Evaluator* evaluator;  ///< null: no evaluation
  };
  Outcome train(TrainingRun& run, RunLog& log, Between const& between);
  Outcome evaluate(TrainingRun const& run, RunLog& log, Evaluator& evaluator) const;
  Outcome generate(TrainingRun const& run, StopCheck& stop_check) const;
  void report_step(TrainingRun const& run, std::int64_t step, StepOutcome const& outcome,
                   PassTimer const& timer) const;

  JobContext job_;
  Deadline deadline_;
  std::int64_t last_step_ = 0;  ///< of the training, once it has ended
  std::string unsaved_;  ///< why the run cannot end as done though its last step is; empty: it can
};

}  // namespace tessera::train
