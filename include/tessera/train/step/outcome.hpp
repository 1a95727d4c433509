#pragma once
/// What a step, an evaluation and a job have come to.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/base/traffic.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"
#include "tessera/kernels/launch/kernel_times.hpp"
#include "tessera/memory/stream_queue.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::train {

/// Where the time of a step goes: kinds of kernels, waiting for other queues (communication that
/// nothing hides, drives, copies), and the rest (gaps between kernels, the host's own work).
struct WorkTimes {
  std::array<double, kernels::work_kinds> kernels{};  ///< seconds, by kernels::Work
  double waits = 0.0;                                 ///< waits of the thread that trains
  double rest = 0.0;

  double total() const;
  /// {"products": 0.41, ..., "waits": 0.0, "rest": 0.01}, seconds
  ConfigTree tree() const;
  /// "products 61.0 %, attention 12.1 %, ..., waits 0.4 %, rest 1.2 %"
  std::string text() const;
};

/// Seconds of one step on this rank. The head's forward pass belongs to backward, for it runs
/// together with its backward pass.
struct PhaseTimes {
  double data = 0.0;      ///< reading the samples
  double forward = 0.0;   ///< embedding and blocks
  double backward = 0.0;  ///< head, blocks and embedding
  double step = 0.0;      ///< what reduction is left, norm, update, all-gather
  WorkTimes work;         ///< the step's time by kinds of work
};

/// Seconds of a step in which a rank has not waited for other ranks: reading samples and computing.
/// On a device computing is the time until its passes are done, measured in every fourth step; at
/// stage 3 nothing is known of it.
struct OwnTime {
  double compute = 0.0, input = 0.0;
  double total() const { return compute + input; }
};

/// A rank that is slower than the others for reasons of its own, see StragglerWatch.
struct Straggler {
  int rank = -1;
  std::string node{};
  std::string what{};  ///< what is slow: "computing", "reading samples" or "network"
  /// Own time per step, and its median of the other ranks. Of a network the time of a mebibyte to
  /// the next node and back, and that between other nodes.
  double seconds = 0.0, others = 0.0;
  double factor() const { return seconds / others; }
};

/// What ranks ask of the training loop between two optimizer steps.
struct StepRequests {
  int stop = 0;              ///< 0: continue; else a signal number or StopRequest::time_limit
  bool save = false;         ///< a resumable checkpoint was asked for
  bool disk_busy = false;    ///< a disk queue still writes the save in flight
  bool lock_lost = false;    ///< another job owns the output directory
  double seconds = 0.0;      ///< that the step has taken
  double own_seconds = 0.0;  ///< sum of OwnTime, in which it did not wait for other ranks
  bool is_slow = false;      ///< a rank has been slower than the mean for some steps

  bool operator==(StepRequests const&) const = default;
};

/// Means over pairs of completions, named as TRL's DPOTrainer names them.
struct PreferenceMetrics {
  static constexpr std::array names{"logits/chosen",    "logits/rejected",    "rewards/chosen",
                                    "rewards/rejected", "rewards/accuracies", "rewards/margins",
                                    "logps/chosen",     "logps/rejected"};
  std::array<double, names.size()> values{};
};

/// What a step measures of examples, named as TRL's SFTTrainer names it; of all ranks.
struct ExampleMetrics {
  double entropy = 0.0;   ///< mean over the micro-steps of the mean over their predictions
  double accuracy = 0.0;  ///< mean_token_accuracy, likewise
  std::int64_t tokens = 0, positions = 0;          ///< read, without and with padding
  std::vector<double> predictions;                 ///< number in each micro-step
  std::optional<PreferenceMetrics> preferences{};  ///< likewise; accuracy is that of chosen tokens
  double predicted_sum() const;
};

/// What all ranks know about an optimizer step once it is done.
struct StepOutcome {
  double loss = 0.0;         ///< mean over the tokens of the global batch, or over its pairs
  std::int64_t tokens = 0;   ///< predicted, of all ranks
  std::int64_t samples = 0;  ///< samples of all ranks
  double learning_rate = 0.0;
  zero::StepResult update;
  double seconds = 0.0;
  std::optional<ExampleMetrics> examples = {};  ///< in a training on examples
  std::optional<PhaseTimes> phases = {};        ///< with a timer
  double data_seconds = 0.0;                    ///< in which the step waited for its samples
  comm::Traffic sent = {};  ///< by the collective operations that this rank called in the step
  memory::GraphLaunches graphs = {};  ///< graph launches of this rank in the step
  /// Requests of all ranks, polled after the last backward pass; none: the step asked nobody.
  std::optional<StepRequests> requests = {};
  OwnTime own = {};                        ///< own time of this rank
  std::vector<Straggler> stragglers = {};  ///< named after this step, the same on all ranks
  /// Tokens that the ranks read, without padding, of samples of this length or of examples.
  std::int64_t tokens_read(std::int64_t per_sample) const {
    return examples ? examples->tokens : samples * per_sample;
  }
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
  /// Mean over the predicted tokens, of examples.
  std::optional<double> entropy{};
  std::optional<PreferenceMetrics> preferences{};  ///< where the loss is a mean over pairs
};

/// How a job ended; errors are thrown.
struct Outcome {
  ExitCode code = ExitCode::done;
  std::string reason = "finished";
};

}  // namespace tessera::train
