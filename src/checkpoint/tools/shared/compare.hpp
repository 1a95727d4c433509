#pragma once
/// What differs between two checkpoints: of any ranks, stages and layouts, DeepSpeed's, or models.
/// Streaming.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/checkpoint/format/directory.hpp"

namespace tessera::checkpoint {

struct CompareOptions {
  std::filesystem::path a,
      b;  ///< whatever zero-to-fp32 reads; also a model directory or a .safetensors file
  std::string tag_a = "", tag_b = "";
  std::vector<std::string> states = {};  ///< empty: all that both have
  ProgressCall progress = {};
  WhenDamaged when_damaged = WhenDamaged::refuse;  ///< the latest of a and b, without a tag
};

struct TensorDifference {
  std::string name, state;
  std::int64_t numel = 0;
  std::int64_t different = 0;  ///< elements whose values differ (NaN equals NaN)
  double max = 0;              ///< largest |a - b|; infinite where only one is NaN or infinite
  double mean = 0;             ///< sum |a - b| / numel
  double relative = 0;         ///< ||a - b|| / ||a||, Euclidean
};

struct OtherShape {
  std::string name;
  std::vector<std::int64_t> a, b;
};

struct CompareReport {
  struct Side {
    std::filesystem::path path;
    std::string format;
    std::int64_t step = -1;                 ///< -1: not known
    std::vector<std::string> only_tensors;  ///< names that the other side lacks
    std::vector<std::string> only_states;
  } a, b;
  std::vector<std::string> states;  ///< compared
  std::vector<OtherShape> other_shapes;
  std::vector<TensorDifference> tensors;  ///< in a's order, one for each state
  bool same_tensors() const {
    return a.only_tensors.empty() && b.only_tensors.empty() && other_shapes.empty();
  }
  double max() const;  ///< over all
};

/// @throws IoError, DataError as the sources do; UsageError when a state is named that one of them
/// lacks
CompareReport compare(CompareOptions const& options);

}  // namespace tessera::checkpoint
