#pragma once
/// GPT-2 as Hugging Face's GPT2LMHeadModel: names, shapes, initial weights and configuration of
/// modeling_gpt2.py.
/// Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.

#include "families/family.hpp"

namespace tessera::model::detail {

Family const& gpt2_family();

/// The fields that families derived from GPT-2 share: all but the activation and the layout of
/// projections.
DecoderDescription read_gpt2(Fields const& fields);

}  // namespace tessera::model::detail
