#pragma once
/// DeepSpeed's *optim_states.pt of one rank, and its *model_states.pt: the module's state,
/// parameter shapes, counters.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "interchange/detail/training_source.hpp"

namespace tessera::checkpoint::detail {

/// "[bf16_]zero_pp_rank_3_mp_rank_00_optim_states.pt"; old versions lack the last underscore.
/// Groups: data-parallel rank, model-parallel rank.
std::regex const& optimizer_file_pattern();

/// What is read from one rank's optimizer file, once for each group (stages 1 and 2) or sub-group
/// (stage 3).
struct RankStates {
  std::vector<std::string> names{optim::master_weights_name};
  std::vector<std::vector<TensorLocation>> flat{1};  ///< [state][group], parallel to names
  bool has_stateless_optimizer = false;              ///< SGD without momentum
  std::vector<std::int64_t> partition_count;
  std::vector<std::vector<std::int64_t>>
      paddings;   ///< after each parameter of a group, with parameter_alignment
  int stage = 0;  ///< 3, or 1 for both lower ones where no number is stored
  std::int64_t optimizer_steps = 0;
  std::optional<optim::LossScalerState> scaler;
};

/// Adds states without elements to the list.
void add_states(RankStates& rank, std::vector<std::string> const& names, std::size_t groups);

/// Reads one file. @throws DataError when it was renamed to another rank's name, or holds what is
/// not read
RankStates read_rank(std::filesystem::path const& path, Wanted wanted, CrcCheck check);

/// A dynamic loss scaler, if there is one.
std::optional<optim::LossScalerState> read_loss_scaler(TorchFile const& file,
                                                       std::optional<PickleValue> scaler);

/// What the *model_states.pt of rank 0 say. The places are in file `file`.
struct ModelStates {
  struct Shape {
    std::string name;
    std::vector<std::int64_t> shape;
    std::int64_t numel = 0;
  };
  int file = 0;
  std::vector<std::vector<Shape>> groups;  ///< param_shapes: in the order of the flat buffers
  std::vector<Shape> frozen;
  std::vector<std::pair<std::string, TensorLocation>> module, frozen_fragments;
  std::vector<std::string> buffer_names;
  std::vector<std::pair<std::string, std::string>> shared;  ///< alias, owner
};
/// Reads it and puts the counters into @p source.
ModelStates read_model_states(std::filesystem::path const& path, TrainingSource& source,
                              CrcCheck check);
/// Buffers, and shared names, once the parameters are in @p source.
void add_buffers(ModelStates const& model, TrainingSource& source);
void add_aliases(ModelStates const& model, TrainingSource& source);

}  // namespace tessera::checkpoint::detail
