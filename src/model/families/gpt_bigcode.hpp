#pragma once
/// GPT-BigCode (SantaCoder, StarCoder) as Hugging Face's GPTBigCodeForCausalLM: GPT-2 with one key
/// and value head for all query heads.
/// Li et al., "StarCoder: may the source be with you!", arXiv 2305.06161.

#include "families/family.hpp"

namespace tessera::model::detail {

Family const& gpt_bigcode_family();

}  // namespace tessera::model::detail
