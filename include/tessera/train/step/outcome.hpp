#pragma once
/// What a step, an evaluation and a job have come to.

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/comm/base/traffic.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/stream_queue.hpp"
#include "tessera/train/step/pass_timer.hpp"
#include "tessera/train/step/step_requests.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::train {

/// What all ranks know about an optimizer step once it is done.
struct StepOutcome {
  double loss = 0.0;         ///< token mean over the global batch
  std::int64_t tokens = 0;   ///< predicted, of all ranks
  std::int64_t samples = 0;  ///< samples of all ranks
  double learning_rate = 0.0;
  zero::StepResult update;
  double seconds = 0.0;
  std::optional<PhaseTimes> phases = {};  ///< with a timer
  double data_seconds = 0.0;              ///< in which the step waited for its samples
  comm::Traffic sent = {};  ///< by the collective operations that this rank called in the step
  memory::GraphLaunches graphs = {};  ///< graph launches of this rank in the step
  /// Requests of all ranks, polled after the last backward pass; none: the step asked nobody.
  std::optional<StepRequests> requests = {};
};

/// The result of an evaluation over a data set.
struct EvaluationResult {
  double loss = 0.0;  ///< mean over all predicted tokens
  double perplexity = 1.0;
  std::int64_t samples = 0;
  std::int64_t passes = 0;  ///< forward passes per rank
  double seconds = 0.0;
  /// Part of the predicted tokens that were the most likely ones; none: the model does not count.
  std::optional<double> accuracy{};
};

/// How a job ended; errors are thrown.
struct Outcome {
  ExitCode code = ExitCode::done;
  std::string reason = "finished";
};

}  // namespace tessera::train
