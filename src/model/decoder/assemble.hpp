#pragma once
/// Builds a decoder from its description.

#include <memory>
#include <string>
#include <vector>

#include "decoder/decoder_layer.hpp"
#include "decoder/description.hpp"
#include "tessera/model/decoder/causal_lm.hpp"

namespace tessera::model::detail {

struct DecoderDtypes {
  Dtype weights, products;
  bool fp8 = false;  ///< products of layers in training
};

/// The layers between embedding and head, with their units.
struct DecoderLayers {
  std::vector<UnitSpec> units;
  std::vector<std::unique_ptr<DecoderLayer>> layers;
  /// Dimensions of the key/value cache: layers of attention, and the heads of each.
  std::int64_t cached_layers = 0, kv_heads = 0, head_dim = 0;
};

/// Embedding and head as described, around @p layers.
/// @param config of Decoder::config()
std::unique_ptr<CausalLm> make_decoder(std::string family, DecoderDescription const& description,
                                       DecoderLayers layers, ConfigTree config,
                                       DecoderDtypes dtypes);
/// Makes a decoder with the blocks that @p description describes. @throws ConfigError when the
/// description has more parameters than any model
std::unique_ptr<CausalLm> make_decoder(std::string family, DecoderDescription const& description,
                                       ConfigTree config, DecoderDtypes dtypes);

}  // namespace tessera::model::detail
