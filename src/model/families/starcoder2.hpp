#pragma once
/// StarCoder2 as Hugging Face's Starcoder2ForCausalLM: Llama's attention with biases, layer
/// normalization and a perceptron without a gate.
/// Lozhkov et al., "StarCoder 2 and The Stack v2", arXiv 2402.19173.

#include "families/family.hpp"

namespace tessera::model::detail {

Family const& starcoder2_family();

}  // namespace tessera::model::detail
