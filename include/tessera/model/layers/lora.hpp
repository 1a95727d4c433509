#pragma once
/// Low-rank adapters of linear layers. Hu et al., "LoRA: Low-Rank Adaptation of Large Language
/// Models", arXiv 2106.09685; names, files and initial values as in Hugging Face's PEFT.

#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tessera/memory/param_provider.hpp"

namespace tessera::model {

/// A linear layer y = W x + b becomes y + scale() * B (A dropout(x)), and only A [rank, in] and B
/// [out, rank] train. B starts at zero, A as PEFT's kaiming_uniform_(a = sqrt(5)): uniform in
/// +-1/sqrt(in).
struct LoraOptions {
  int rank = 8;
  double alpha = 8.0;
  double dropout = 0.0;
  bool rank_stabilized = false;  ///< scale by alpha / sqrt(rank)
  /// Names of linear layers, or their ends at a dot; "all-linear": all but the head. Empty: those
  /// of the family.
  std::vector<std::string> targets{};
  std::string pattern{};    ///< instead of targets: a regular expression of complete names
  bool transposed = false;  ///< the adapted matrices are [in, out] (PEFT's fan_in_fan_out)

  double scale() const;
  bool is_target(std::string const& layer) const;
  bool operator==(LoraOptions const&) const = default;
};

/// "<this><layer>.lora_A.weight" and ".lora_B.weight" are the names of the matrices in files.
inline constexpr char adapter_prefix[] = "base_model.model.";

/// What an adapter_config.json says. @throws ConfigError naming an option that Tessera does not
/// compute, or a value out of range
LoraOptions read_adapter_config(ConfigTree const& config);
/// Returns the adapter_config.json that PEFT would write. @param base directory of the adapted
/// model; empty: null
ConfigTree adapter_config(LoraOptions const& options, std::string const& base);

/// Returns @p options with the targets and the layout of the model that @p hf_config describes.
LoraOptions complete_lora(LoraOptions options, ConfigTree const& hf_config);

/// Freezes the parameters whose complete names @p pattern matches (ECMAScript regular expression).
/// @throws ConfigError for a pattern that is none, or matches nothing
void freeze(std::vector<memory::UnitSpec>& units, std::string const& pattern);

}  // namespace tessera::model
