#pragma once
/// Phi (Phi-1, Phi-1.5, Phi-2) as Hugging Face's PhiForCausalLM: both branches of a block behind
/// one norm, a head with a bias. Phi-3 as Phi3ForCausalLM: Llama with fused projections. Li et al.,
/// "Textbooks Are All You Need II", arXiv 2309.05463; Abdin et al., arXiv 2404.14219.

#include "families/family.hpp"

namespace tessera::model::detail {

Family const& phi_family();
Family const& phi3_family();

}  // namespace tessera::model::detail
