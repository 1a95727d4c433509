#pragma once
/// Typed reads of a Hugging Face config.json whose errors name the field; its rotary positions, as
/// transformers 5 writes them (`rope_parameters`) and as transformers 4 does (`rope_theta`,
/// `rope_scaling`); and what ModelOptions change in it and in the description of a decoder.

#include <optional>
#include <string>
#include <string_view>

#include "decoder/description.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/kernels/attention/rotary_tables.hpp"
#include "tessera/kernels/elementwise/activation.hpp"
#include "tessera/model/families/registry.hpp"

namespace tessera::model::detail {

/// Reads members of @p config; a missing or null member is an error, so defaults are to be filled
/// in before.
class Fields {
 public:
  explicit Fields(ConfigTree const& config) : config_(config) {}

  std::int64_t integer(std::string_view key) const;
  /// @throws ConfigError when below 1 or above 2^31 - 1.
  std::int64_t positive(std::string_view key) const;
  double real(std::string_view key) const;
  /// @throws ConfigError unless 0 <= value < 1.
  double probability(std::string_view key) const;
  /// A number of layers. @throws ConfigError when no list of this many layers can be built.
  int layers(std::string_view key) const;
  /// Reads the epsilon of a norm. @throws ConfigError unless positive.
  double epsilon(std::string_view key) const;
  /// @throws ConfigError unless above 0.
  double positive_real(std::string_view key) const;
  /// A standard deviation. @throws ConfigError when negative.
  double deviation(std::string_view key) const;
  /// positive(), or @p otherwise where the field is missing or null.
  std::int64_t positive_or(std::string_view key, std::int64_t otherwise) const;
  /// A number of heads that divides the columns of field @p of.
  int heads(std::string_view key, std::string_view of) const;
  /// transformers' name of an activation function. @throws ConfigError naming those that are
  /// computed.
  kernels::Activation activation(std::string_view key) const;
  /// @throws ConfigError unless the field is missing, null, false, 0 or empty; @p instead says what
  /// to do.
  void refuse(std::string_view key, std::string_view instead) const;
  bool flag(std::string_view key) const;
  std::string text(std::string_view key) const;
  bool is_set(std::string_view key) const;

 private:
  ConfigTree const& value(std::string_view key) const;
  ConfigTree const& config_;
};

/// All but the adapters, whose targets depend on the family.
/// @throws ConfigError for options that contradict each other or the description
void apply_options(DecoderDescription& description, ModelOptions const& options);
/// Notes the dtype, the head and the class: @p architecture, unless the head has one.
void write_options(ConfigTree& config, ModelOptions const& options, std::string_view architecture);

/// What a family says about its fields.
struct RotaryFields {
  int head_dim = 0;
  std::string_view theta = "rope_theta";  ///< name of transformers 4, as the following
  std::string_view partial = "partial_rotary_factor";
  double partial_default = 1.0;  ///< part of a head that is rotated
  /// Names of the scaling: in Phi-3 "su" and "yarn" are older names of longrope, which is its only
  /// scaling; in other families "yarn" is YaRN and "su" is nothing.
  enum class Names { general, phi3 } names = Names::general;
};

/// @throws ConfigError naming a field that is unsupported, missing or of the wrong type
kernels::RotaryOptions read_rotary(ConfigTree const& config, RotaryFields const& of);

/// Most positions in a row: max_position_embeddings, or what dynamic scaling extends it to.
std::int64_t max_positions(ConfigTree const& config, kernels::RotaryOptions const& rotary);

/// The fields of transformers 4. Where a file has one of them, the default of rope_parameters does
/// not count.
bool has_older_rotary_fields(ConfigTree const& config);

}  // namespace tessera::model::detail
