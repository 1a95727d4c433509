#pragma once
/// OLMo 2 as Hugging Face's Olmo2ForCausalLM: Llama with norms after the branches, and of all
/// queries and all keys of a position. OLMo team, "2 OLMo 2 Furious", arXiv 2501.00656.

#include "families/family.hpp"

namespace tessera::model::detail {

Family const& olmo2_family();

}  // namespace tessera::model::detail
