#pragma once
/// Builds a decoder from its description.

#include <memory>
#include <string>

#include "detail/description.hpp"
#include "tessera/model/causal_lm.hpp"

namespace tessera::model::detail {

struct DecoderDtypes {
  Dtype weights, products;
};

/// @param config of Decoder::config()
/// @throws ConfigError when the description has more parameters than any model
std::unique_ptr<CausalLm> make_decoder(std::string family, DecoderDescription const& description,
                                       ConfigTree config, DecoderDtypes dtypes);

}  // namespace tessera::model::detail
