#pragma once
/// DeepSpeed's *model_states.pt: the module's state, parameter shapes, counters.

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "interchange/detail/training_source.hpp"

namespace tessera::checkpoint::detail {

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
