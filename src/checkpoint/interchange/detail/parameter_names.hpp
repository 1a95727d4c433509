#pragma once
/// Names under which files of other programs may have a parameter.

#include <string>
#include <vector>

#include "tessera/memory/param_provider.hpp"

namespace tessera::checkpoint::detail {

/// The parameter's name and aliases, most likely first. Weights of the bare model lack the head
/// class's prefix ("wte.weight"), others have it where we do not; wrappers put "module." before
/// all.
std::vector<std::string> possible_names(memory::ParameterSpec const& parameter);

/// Whether a tensor is an adapter's of PEFT: "base_model.model...lora_A.default.weight".
bool is_peft_adapter(std::string const& name);

/// Whether a tensor is a constant that older versions of transformers saved with the weights.
bool is_saved_constant(std::string const& name);

}  // namespace tessera::checkpoint::detail
