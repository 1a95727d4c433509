#pragma once
/// A training state of another program as named tensors whose elements are spread over files.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "interchange/detail/torch_file.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/memory/param_provider.hpp"
#include "tessera/optim/loss_scaler.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::checkpoint::detail {

/// Files by number, opened when they are read, closed again when too many are open.
class FileSet {
 public:
  int add(std::filesystem::path const& path);
  File const& open(int index);
  std::filesystem::path const& path(int index) const {
    return paths_[static_cast<std::size_t>(index)];
  }

 private:
  std::vector<std::filesystem::path> paths_;
  std::vector<File> files_;
  std::size_t open_ = 0, most_open_ = 0;
};

/// Tensors of several files, flattened and put one after the other.
class FlatRuns {
 public:
  void add(int file, TensorLocation place);
  std::int64_t numel() const { return ends_.empty() ? 0 : ends_.back(); }
  void read(FileSet& files, std::int64_t first, std::int64_t numel, float* out) const;

 private:
  struct Run {
    int file = 0;
    TensorLocation place;
  };
  std::vector<Run> runs_;
  std::vector<std::int64_t> ends_;  ///< elements up to the end of each run
};

/// A tensor's elements: element e is in part e / chunk at offset + e % chunk. Without parts
/// they are all zero.
struct StateSource {
  std::shared_ptr<std::vector<FlatRuns> const> parts;
  std::int64_t offset = 0, chunk = 1;
  void read(FileSet& files, std::int64_t first, std::int64_t numel, float* out) const;
};

struct SourceTensor {
  enum class Kind { trained, frozen, buffer };
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<std::string> aliases;
  Kind kind = Kind::trained;
  std::int64_t numel = 0;
  std::vector<StateSource> states;  ///< parallel to TrainingSource::state_names; missing ones are 0
};

/// The states of the optimizer in the table that may keep all of @p present, else of the one whose
/// states are all among them: PyTorch's AMSGrad has one more. Empty when there is none.
std::vector<std::string> matching_states(std::vector<std::string> const& present);
/// Names of the states in a PyTorch optimizer's dict of one parameter, as optim's table has them;
/// empty for an optimizer that keeps none.
/// @throws DataError naming the dict's keys, and what to do @p instead, when no optimizer of the
/// table has such states
std::vector<std::string> state_names_in(
    PickleValue const& state,
    std::string const& instead = "convert only the weights with zero-to-fp32");
/// The updates that such a dict counts; 0: it does not.
std::int64_t steps_in(TorchFile const& file, PickleValue const& state);
/// Whether the optimizer of a param_groups entry keeps no state: SGD without momentum.
bool keeps_no_state(TorchFile const& file, PickleValue const& group);

/// Which states to read; states of an unknown optimizer are refused only where they are needed.
enum class Wanted { weights, training_state };

struct TrainingSource {
  std::string format;  ///< "DeepSpeed ZeRO stage 2 of 4 ranks", for messages
  std::filesystem::path directory;
  int stage = 0, ranks = 1;
  /// "fp32" and the states of the source's optimizer; only "fp32" when the source has none.
  std::vector<std::string> state_names{optim::master_weights_name};
  std::vector<SourceTensor> tensors;
  FileSet files;
  std::int64_t global_steps = 0, skipped_steps = 0, samples = 0;
  std::int64_t optimizer_steps = 0;      ///< as the optimizer's states count them; 0: they do not
  bool has_stateless_optimizer = false;  ///< SGD without momentum
  std::optional<optim::LossScalerState> loss_scaler;  ///< state of a dynamic loss scaler
  ConfigTree config;                                  ///< the other program's own
  std::string version;

  /// Updates that the optimizer has made. SGD's states hold no count: its updates are the steps
  /// that were not skipped.
  std::int64_t updates() const {
    bool const has_optimizer = state_names.size() > 1 || has_stateless_optimizer;
    if (optimizer_steps > 0 || !has_optimizer) return optimizer_steps;
    return global_steps - skipped_steps;
  }

  void read(std::size_t tensor, std::size_t state, std::int64_t first, std::int64_t numel,
            float* out) {
    auto const& states = tensors[tensor].states;
    (state < states.size() ? states[state] : StateSource()).read(files, first, numel, out);
  }
};

/// A tensor that is contiguous in one file.
StateSource whole(int file, TensorLocation const& place);

/// The parameter's name and aliases, most likely first. Weights of the bare model lack the head
/// class's prefix ("wte.weight"), others have it where we do not; wrappers put "module." before
/// all.
std::vector<std::string> possible_names(memory::ParameterSpec const& parameter);

/// Whether a tensor is an adapter's of PEFT: "base_model.model...lora_A.default.weight".
bool is_peft_adapter(std::string const& name);

/// Whether a tensor is a constant that older versions of transformers saved with the weights.
bool is_saved_constant(std::string const& name);

}  // namespace tessera::checkpoint::detail
