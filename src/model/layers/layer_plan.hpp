#pragma once
/// What the parts of a layer of one's own learn and leave while a model is composed.

#include <optional>
#include <string>

#include "tessera/kernels/attention/rotary_tables.hpp"
#include "tessera/memory/param_provider.hpp"

namespace tessera::model::detail {

/// The attention parts of a model, in the order in which they were built.
struct AttentionParts {
  int count = 0;
  int kv_heads = 0, head_dim = 0;  ///< of the first one
  bool equal = true;               ///< all others have the same

  void add(int kv, int dim) {
    if (count++ == 0) kv_heads = kv, head_dim = dim;
    equal = equal && kv == kv_heads && dim == head_dim;
  }
};

struct LayerPlan {
  memory::UnitSpec& unit;
  std::string name;
  std::optional<kernels::RotaryOptions> const& rotary;
  AttentionParts& attention;

  std::string below(std::string const& part) const { return name + "." + part; }
};

}  // namespace tessera::model::detail
