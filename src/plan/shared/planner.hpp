#pragma once
/// What each choice needs and how fast it is, from the code of the run.

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/config/arguments.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/model/families/registry.hpp"
#include "tessera/plan/choice.hpp"
#include "tessera/plan/machine_profile.hpp"
#include "tessera/plan/step_time.hpp"
#include "tessera/train/setup/memory_plan.hpp"

namespace tessera::plan {

/// Bytes that a rank may use; 0: not known, so that everything fits.
struct Limits {
  std::int64_t device = 0, host = 0, nvme = 0;
  /// Bytes of device and host that the process itself needs: the device's context, NCCL, libraries.
  std::int64_t device_reserved = 0, host_reserved = 0;
};

struct PlanRequest {
  config::TrainingArguments arguments;
  Cluster cluster;
  Limits limits;
  std::optional<MachineProfile> machine;  ///< none: no times
  double train_tokens = 0.0;              ///< tokens of the training; 0: from max_steps, if any
  bool splits_given_batch = false;        ///< see ChoiceLimits
};

/// A choice with its needs, per rank.
struct PlannedChoice {
  Choice choice;
  std::string refused;  ///< why such a run does not start; the rest is then empty
  train::MemoryPlan memory;
  std::int64_t device_bytes = 0, host_bytes = 0, nvme_bytes = 0;  ///< with what is reserved
  bool fits = false;
  WireBytes wire;                  ///< per step
  std::optional<StepTime> time;    ///< with a machine profile
  double tokens_per_second = 0.0;  ///< rate of all ranks
};

/// A model on a machine, and the choices that were asked for so far.
class Planner {
 public:
  /// @throws ConfigError, UsageError as the start of the run would
  explicit Planner(PlanRequest request);

  PlanRequest const& request() const { return request_; }
  model::CausalLm const& model() const { return *models_.begin()->second; }
  config::ResolvedConfig const& given() const { return given_; }
  bool computes_on_device() const { return !request_.arguments.use_cpu; }
  std::int64_t parameters() const { return parameters_; }
  std::int64_t sequence() const { return sequence_; }
  double tokens_per_step() const;
  /// Returns the steps of the training; 0: not known.
  double steps() const;
  /// Bytes of a checkpoint: fp32 master weights and the optimizer's states.
  double checkpoint_bytes() const;

  /// A model for a run with @p config.
  std::unique_ptr<model::CausalLm> make_model(config::ResolvedConfig const& config) const;
  /// The adapters of the request's model.
  std::optional<model::LoraOptions> adapters() const;
  /// The needs of one choice.
  PlannedChoice const& evaluate(Choice const& choice);
  /// The resolved configuration of a run that is made that way.
  config::ResolvedConfig resolved(Choice const& choice) const;
  /// A machine, and ranks of it that differ in speed.
  struct Timing {
    MachineProfile machine;
    std::vector<RankClass> classes;
  };
  /// The time of a step of @p choice with each of @p timings. @throws ConfigError
  std::vector<StepTime> step_times(Choice const& choice, std::vector<Timing> const& timings);
  /// Ranks all open choices, and keeps only the best of those that differ in the micro-batch or in
  /// the size of shard groups. One group of all ranks is a choice of its own. A choice that does
  /// not fit is timed only when it is a row of the result.
  std::vector<PlannedChoice> compare();
  std::vector<Choice> open() const;

 private:
  /// memory: without times and bytes on the wire
  enum class PlannedParts { all, memory };
  PlannedChoice plan(Choice const& choice, PlannedParts parts);
  PlannedChoice if_it_fits(Choice const& choice);
  model::CausalLm& model_for(config::ResolvedConfig const& config);
  train::PlannedRun run_of(config::ResolvedConfig const& config, Choice const& choice) const;
  void add_times(PlannedChoice& out, model::CausalLm& model, train::PlannedRun const& run);
  void add_memory(PlannedChoice& out, model::CausalLm& model) const;

  PlanRequest request_;
  ConfigTree model_config_;
  config::ResolvedConfig given_;
  std::map<std::pair<Dtype, Dtype>, std::unique_ptr<model::CausalLm>> models_;
  std::int64_t parameters_ = 0, sequence_ = 0;
  std::deque<PlannedChoice> known_;  ///< addresses stay
};

/// "74.5 GiB of device memory and 232.8 GiB of host memory": those that are known.
std::string limits_text(Limits const& limits);
/// What @p planned needs of each memory space whose limit it exceeds, in the same words.
std::string need_text(PlannedChoice const& planned, Limits const& limits);

/// The faster one of two that fit: by time where both have one and they differ by more than 1 %,
/// else by the guides' order.
bool is_better(PlannedChoice const& a, PlannedChoice const& b);
/// The best choice that fits; null: none does.
PlannedChoice const* recommended(std::vector<PlannedChoice> const& choices);

}  // namespace tessera::plan
