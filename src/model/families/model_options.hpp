#pragma once
/// What ModelOptions change in the description of a decoder and in its config.json.

#include <string_view>

#include "decoder/description.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/model/families/registry.hpp"

namespace tessera::model::detail {

/// All but the adapters, whose targets depend on the family.
/// @throws ConfigError for options that contradict each other or the description
void apply_options(DecoderDescription& description, ModelOptions const& options);
/// Notes the dtype, the head and the class: @p architecture, unless the head has one.
void write_options(ConfigTree& config, ModelOptions const& options, std::string_view architecture);

}  // namespace tessera::model::detail
