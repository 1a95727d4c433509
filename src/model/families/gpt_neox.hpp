#pragma once
/// GPT-NeoX (Pythia) as Hugging Face's GPTNeoXForCausalLM: both branches of a block in parallel,
/// queries, keys and values of a head next to each other, part of each head rotated.
/// Black et al., "GPT-NeoX-20B", arXiv 2204.06745.

#include "families/family.hpp"

namespace tessera::model::detail {

Family const& gpt_neox_family();

}  // namespace tessera::model::detail
