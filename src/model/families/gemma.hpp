#pragma once
/// Gemma and Gemma 2 as Hugging Face's GemmaForCausalLM and Gemma2ForCausalLM: Llama with scaled
/// embeddings and norms that add one to gamma; Gemma 2 with norms on both sides of the branches,
/// windows of every second layer and capped logits.
/// Gemma team, arXiv 2403.08295 and arXiv 2408.00118.

#include "families/family.hpp"

namespace tessera::model::detail {

Family const& gemma_family();
Family const& gemma2_family();

}  // namespace tessera::model::detail
