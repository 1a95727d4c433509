#pragma once
/// Finds silent corruption: every few steps another rank computes a micro-batch of each rank again,
/// from the same weights, and the ranks compare hashes of weights, loss and gradients. States that
/// have changed between two updates are found as well.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/param_provider.hpp"
#include "tessera/model/layers/batch.hpp"
#include "tessera/train/step/model_context.hpp"
#include "tessera/zero/engine/engine.hpp"
#include "tessera/zero/layout/parameter_subset.hpp"

namespace tessera::train {

/// A rank has computed something else than other ranks. Every rank throws it after the same step.
struct CorruptionError : Error {
  CorruptionError(int suspect_rank, std::string const& message)
      : Error(ExitCode::peer_lost, message), rank(suspect_rank) {}
  int rank;  ///< -1: unknown
};

/// Which ranks compute what in a verification, with @p ranks ranks: rank r computes the micro-batch
/// of rank r + first again and, where hashes differ, then that of rank r + second.
struct Shifts {
  int first = 0, second = 0;
};
/// Shifts rotate: after ranks - 1 verifications every rank has verified every other one. Two ranks
/// decide by a second computation of their own micro-batches.
Shifts shifts_of(std::int64_t verification, int ranks);

/// What a rank contributes to a comparison.
struct RankHashes {
  std::vector<std::uint64_t> weights;  ///< hashes of its weights by unit
  std::vector<std::uint64_t> own;  ///< hashes of its micro-batch: gradients by unit, then the loss
  std::vector<std::uint64_t> first, second;  ///< hashes of the micro-batches that Shifts names
};
/// A rank whose hashes differ from those of the others.
struct Finding {
  enum class What {
    weights,
    results,
    states,          ///< other ranks have copies of them
    changed_states,  ///< a rank's states are not those that its last update has left
  };
  What what = What::weights;
  int rank = -1;         ///< -1: the ranks do not tell which of them is wrong
  std::size_t unit = 0;  ///< the first one that differs; results: one after the last is the loss
  bool operator==(Finding const&) const = default;
};
/// Finds the ranks whose weights differ from those of most ranks. Without one: the ranks whose
/// results differ from those of two other computations of the same micro-batch.
std::vector<Finding> findings(std::vector<RankHashes> const& ranks, Shifts shifts);
/// Ranks whose entry is a unit plus 1, and not 0.
std::vector<Finding> changed_states(std::vector<std::uint64_t> const& of_ranks);
/// Finds among @p values of copies, by rank and unit, those that differ from most of them.
/// @param copies  number of ranks that share one copy
std::vector<Finding> differing_copies(std::vector<std::vector<std::uint64_t>> const& values,
                                      int copies, Finding::What what);

/// Gives the weights of an engine to a pass and takes its gradients, and hashes both.
class HashingParams final : public memory::ParamProvider {
 public:
  HashingParams(std::vector<memory::UnitSpec> const& units, zero::Engine& engine,
                memory::Queue& compute);

  /// reduced: the gradients are those of the step. discarded: only their hashes remain, and the
  /// weights of the pass are hashed as well.
  enum class Gradients { reduced, discarded };
  void begin(Gradients gradients);
  /// Hashes since begin(), by unit. Wait for the queue.
  std::vector<std::uint64_t> weights() const { return read(0); }
  std::vector<std::uint64_t> gradients() const { return read(1); }

  void begin_pass(memory::Pass pass, std::vector<memory::UnitIndex> acquisitions) override;
  memory::WeightLease acquire(memory::UnitIndex unit, memory::Queue& compute) override;
  memory::GradientLease gradient(memory::UnitIndex unit, memory::Queue& compute) override;
  void gradient_complete(memory::UnitIndex unit, memory::Queue& compute) override;

 private:
  struct UnitState {
    bool weights_hashed = false;
    std::vector<memory::TensorView> gradients{};  ///< views of the open lease; empty: none
    std::optional<std::size_t> scratch{};
  };
  std::uint64_t* hash(std::size_t kind, memory::UnitIndex unit) const;
  std::vector<std::uint64_t> read(std::size_t kind) const;
  std::vector<memory::TensorView> scratch_views(memory::UnitIndex unit);
  std::size_t take_scratch(std::size_t bytes);

  zero::Engine& engine_;
  memory::Queue& compute_;
  zero::ParameterSubset trained_;
  std::vector<std::size_t> parameters_;  ///< number of parameters by unit of the model
  std::vector<UnitState> units_;
  memory::Buffer hashes_;  ///< [2, units, hash_parts]: weights, gradients
  struct Scratch {
    memory::Buffer buffer;
    bool is_free = false;
  };
  std::vector<Scratch> scratch_;
  Gradients mode_ = Gradients::reduced;
};

/// What is wrong, with names.
struct Corruption {
  std::int64_t step = 0;
  Finding finding;
  std::string node{}, device{};  ///< empty: unknown
  std::string unit{};            ///< "embedding", "block.0", "head", or "loss"
  std::string text() const;
  /// {"step": 40, "what": "weights", "unit": "block.0", "rank": 3, "node": "n1", "device": "CPU"}
  ConfigTree tree() const;
};

/// Verifies steps of a run with several ranks, each with micro-batches of its own.
class Verifier {
 public:
  struct Options {
    std::int64_t interval = 1;         ///< steps
    std::vector<std::string> hosts{};  ///< host of every rank
    bool warns_only = false;           ///< a step is computed again, and then training continues
    std::function<void(std::vector<Corruption> const&)> report{};  ///< on every rank
  };
  Verifier(ModelContext const& context, zero::Engine& engine, Options options);

  /// Returns true for the first step of the run and for every interval-th one.
  bool due(std::int64_t step) const;
  /// Gives weights and takes gradients of the first micro-step of a step that is due.
  memory::ParamProvider& first_micro_step();
  /// Computes the first micro-batch of the rank with this coordinate.
  using Recompute = std::function<model::LossSum(int data_coordinate, memory::ParamProvider&)>;
  /// Called once the first micro-step is enqueued. Collective.
  /// @return false: the step must be computed again
  /// @throws CorruptionError
  bool agrees(std::int64_t step, model::LossSum const& loss, Recompute const& recompute);
  /// Compares the weights of all ranks, the states of ranks that have copies of the same ones, and
  /// those of each rank with what its last update has left. Collective. @throws CorruptionError
  void compare_copies(std::int64_t step, std::vector<zero::StateView> const& states);

 private:
  /// Hashes of a pass that computes another rank's micro-batch.
  std::vector<std::uint64_t> results(int shift, Recompute const& recompute);
  /// Unit of the states of this rank that have changed between two updates, plus 1; 0: none.
  std::uint64_t changed_states();
  /// Reports what is found. @throws CorruptionError unless the options say to warn only
  void act(std::int64_t step, std::vector<Finding> const& found);

  ModelContext context_;
  zero::Engine& engine_;
  Options options_;
  HashingParams params_;
  bool has_verified_ = false;
  std::int64_t repeated_step_ = -1;  ///< the last step that was computed again
};

}  // namespace tessera::train
