#pragma once
/// The parameters of a model that train, and those that are frozen. Each half is partitioned by a
/// plan of its own. How a caller gives both their initial values.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/memory/param_provider.hpp"

namespace tessera::zero {

/// Some parameters of a model. Every unit keeps its index, and may have none of them.
struct ParameterSubset {
  std::vector<memory::UnitSpec> units;
  /// [unit][i]: where parameter i of the unit here is in the model's unit.
  std::vector<std::vector<std::size_t>> in_model;

  bool empty() const;
};

ParameterSubset trained_parameters(std::vector<memory::UnitSpec> const& units);
ParameterSubset frozen_parameters(std::vector<memory::UnitSpec> const& units);
/// The frozen parameters that EngineConfig::quantized_base keeps as codes, and the other ones:
/// codes are of the matrices of all units but the first and the last, which are those of linear
/// layers. Embeddings and the head keep their values, as with bitsandbytes.
ParameterSubset quantized_parameters(std::vector<memory::UnitSpec> const& units);
ParameterSubset unquantized_parameters(std::vector<memory::UnitSpec> const& units);

/// Writes @p numel fp32 values of a parameter, from element @p first on, to @p out. @p parameter is
/// the index of the parameter in the model's unit.
using WeightFill = std::function<void(memory::UnitIndex unit, int parameter, std::int64_t first,
                                      std::int64_t numel, float* out)>;

}  // namespace tessera::zero
