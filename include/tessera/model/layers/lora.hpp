#pragma once
/// Low-rank adapters of linear layers, and modules that train in full next to them. Hu et al.,
/// "LoRA: Low-Rank Adaptation of Large Language Models", arXiv 2106.09685; Liu et al., "DoRA",
/// ICML'24; names, files and initial values as in Hugging Face's PEFT.

#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tessera/memory/param_provider.hpp"

namespace tessera::model {

/// Initial values of A and B, PEFT's init_lora_weights. They leave the base as it is.
enum class LoraInit {
  uniform,   ///< true: A uniform in +-1/sqrt(in), which is kaiming_uniform_(a = sqrt(5)); B zero
  gaussian,  ///< "gaussian": A normal with standard deviation 1/rank; B zero
  nonzero    ///< false: A as `uniform`, B uniform in +-1/sqrt(rank)
};

/// A linear layer y = W x + b becomes y + scale() * B (A dropout(x)), and only A [rank, in] and B
/// [out, rank] train. With DoRA a row of W + scale() * B A is divided by its norm, which counts as
/// a constant in gradients, and multiplied by its magnitude; magnitudes [out] train, too.
struct LoraOptions {
  int rank = 8;
  double alpha = 8.0;
  double dropout = 0.0;
  bool rank_stabilized = false;  ///< scale by alpha / sqrt(rank)
  bool magnitudes = false;       ///< PEFT's use_dora; initialize_parameter() starts them at one
  LoraInit init = LoraInit::uniform;
  /// Names of linear layers, or their ends at a dot; "all-linear": all but the head. Empty: those
  /// of the family.
  std::vector<std::string> targets{};
  std::string pattern{};    ///< instead of targets: a regular expression of complete names
  bool transposed = false;  ///< the adapted matrices are [in, out] (PEFT's fan_in_fan_out)
  /// Ends of the names of modules that train in full. Their layers have no adapters.
  std::vector<std::string> modules_to_save{};
  /// A head that shares the weights of the embedding trains with it (PEFT's ensure_weight_tying).
  bool ties_saved_modules = false;

  double scale() const;
  bool is_target(std::string const& layer) const;
  /// Whether the name of @p module, or of a module that contains it, ends like one of
  /// modules_to_save.
  bool saves(std::string const& module) const;
  bool operator==(LoraOptions const&) const = default;
};

/// "<this><layer>.lora_A.weight" and ".lora_B.weight" are the names of the matrices in files,
/// "<this><layer>.lora_magnitude_vector" that of the magnitudes, "<this><parameter>" that of a
/// parameter of a module that trains in full.
inline constexpr char adapter_prefix[] = "base_model.model.";
inline constexpr char magnitude_suffix[] = ".lora_magnitude_vector";

/// Whether a parameter of the model trains in full and is stored with the adapters.
inline bool is_saved_module(memory::ParameterSpec const& parameter) {
  return !parameter.is_adapter && parameter.name.starts_with(adapter_prefix);
}

/// What an adapter_config.json says. @throws ConfigError naming an option that Tessera does not
/// compute, or a value out of range
LoraOptions read_adapter_config(ConfigTree const& config);
/// Returns the adapter_config.json that PEFT would write. @param base directory of the adapted
/// model; empty: null
ConfigTree adapter_config(LoraOptions const& options, std::string const& base);

/// Returns @p options with the targets and the layout of the model that @p hf_config describes.
LoraOptions complete_lora(LoraOptions options, ConfigTree const& hf_config);

/// Lets the parameters of options.modules_to_save train, under their names in the adapter's file.
/// @throws ConfigError for a module that the model does not have, that has adapted layers, or that
/// shares its weights without options.ties_saved_modules
void train_saved_modules(std::vector<memory::UnitSpec>& units, LoraOptions const& options);

/// Freezes the parameters whose complete names @p pattern matches (ECMAScript regular expression).
/// @throws ConfigError for a pattern that is none, or matches nothing
void freeze(std::vector<memory::UnitSpec>& units, std::string const& pattern);

}  // namespace tessera::model
