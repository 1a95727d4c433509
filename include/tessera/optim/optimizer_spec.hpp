#pragma once
/// An optimizer as a value: the algorithm, its hyperparameters, the states that it keeps for each
/// parameter, and its parameter groups. Everything above `optim` (allocation, memory report,
/// checkpoints) reads this value and knows no optimizer by name. How to add one:
/// docs/development/add-an-optimizer.md.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/dtype.hpp"

namespace tessera::optim {

/// Number of values that a state keeps for one parameter. A parameter is a matrix of its first
/// dimension (rows) by all others (columns). Every rank holds all values of a state per row, per
/// column or per parameter. A state per chunk has one value for quantization_chunk consecutive
/// elements of a parameter, and is spread over the ranks with them.
enum class Extent { elementwise, per_row, per_column, scalar, per_chunk };

constexpr bool is_spread(Extent extent) {
  return extent == Extent::elementwise || extent == Extent::per_chunk;
}

/// How the values are in memory. In checkpoints they are fp32.
enum class Encoding {
  values,         ///< values of the state's dtype
  signed_codes,   ///< 8 bits: kernels::DynamicMap::signed_values
  unsigned_codes  ///< 8 bits: kernels::DynamicMap::unsigned_values
};

/// What the ranks that replicate the optimizer (ZeRO stage 0) have of a state.
enum class Copies {
  equal,   ///< every rank has equal values
  own,     ///< each rank its own values; checkpoints have their mean
  sharded  ///< each rank its shard, as in the other stages
};

/// A state that an optimizer keeps for each parameter.
struct StateSpec {
  std::string name;  ///< PyTorch's name: "exp_avg"; unique, also a group name in checkpoints
  Dtype dtype = Dtype::fp32;  ///< in memory; fp32 in checkpoints
  Extent extent = Extent::elementwise;
  Encoding encoding = Encoding::values;
  Copies copies = Copies::equal;

  /// One value of `dtype` per element.
  bool is_plain() const { return extent == Extent::elementwise && encoding == Encoding::values; }
  bool operator==(StateSpec const&) const = default;
};

/// A state in codes, and the state per chunk with its largest magnitudes.
StateSpec quantized_state(std::string name, Encoding encoding);
StateSpec absmax_state(std::string const& name);

/// The master weights, which are saved like a state, and first of them.
inline constexpr char const* master_weights_name = "fp32";

/// A hyperparameter with its value.
struct Hyperparameter {
  std::string name;    ///< PyTorch's name; beta1 and beta2 for the two `betas`
  double value = 0.0;  ///< flags are 0 or 1
  bool operator==(Hyperparameter const&) const = default;
};

/// Whether the weights of a parameter decay, see ParameterSpec::decays.
enum class WeightDecay { applies, skipped };

/// Parameters that share hyperparameters.
struct ParameterGroup {
  /// Which parameters belong to a group.
  enum class Members { all, decaying, not_decaying };  ///< by ParameterSpec::decays
  std::string name;
  Members members = Members::all;
  std::vector<Hyperparameter> overrides;  ///< instead of the optimizer's own values
  bool operator==(ParameterGroup const&) const = default;
};

/// An optimizer without its states.
struct OptimizerSpec {
  std::string algorithm;  ///< DeepSpeed's name: "AdamW", "SGD"
  std::vector<Hyperparameter> hyperparameters;
  /// In the order of checkpoints, the element-wise ones first; without the master weights.
  std::vector<StateSpec> states;
  std::vector<ParameterGroup> groups;

  /// @throws InternalError naming a hyperparameter that the optimizer does not have
  double value(std::string_view hyperparameter) const;
  /// Returns the hyperparameter's value for parameters of group @p group.
  double value(std::string_view hyperparameter, std::size_t group) const;
  bool has(std::string_view hyperparameter) const;
  /// Index of the group of a parameter.
  /// @throws InternalError when no group has it
  std::size_t group_of(WeightDecay decay) const;
  /// "fp32" and the names of all states, in the order of checkpoints.
  std::vector<std::string> state_names() const;
  bool has_codes() const;  ///< whether a state is in codes
  /// Sets the dtype of the states with one value per element, such as 16 bits.
  void set_state_dtype(Dtype dtype);

  bool operator==(OptimizerSpec const&) const = default;
};

/// The two groups of PyTorch training scripts: weight decay for weight matrices only.
std::vector<ParameterGroup> decay_groups();
/// One group with every parameter.
std::vector<ParameterGroup> one_group();

/// The spec of @p algorithm: its defaults, with @p values instead where they are given.
/// @throws ConfigError naming the algorithm or hyperparameter that is unknown or out of range
OptimizerSpec make_spec(std::string const& algorithm,
                        std::vector<Hyperparameter> const& values = {},
                        std::vector<ParameterGroup> groups = decay_groups());

}  // namespace tessera::optim
