#pragma once
/// Values that are inf or NaN, by tensor: what a save refuses, and what the tools report.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera::checkpoint {

/// Values of one state of a tensor that are not finite.
struct NonFinite {
  std::string tensor;
  std::string state;  ///< "fp32", "exp_avg"; empty: of a model without states
  std::int64_t count = 0;
  bool operator==(NonFinite const&) const = default;
};

/// How many of @p values are not finite after rounding to @p dtype: inf, NaN, and values beyond
/// its range. One pass over memory, without branches.
std::int64_t count_nonfinite(float const* values, std::int64_t numel, Dtype dtype = Dtype::fp32);

/// Counts by tensor and state, in the order in which they were first added.
class NonFiniteTally {
 public:
  /// A count of 0 is not kept.
  void add(std::string const& tensor, std::string const& state, std::int64_t count);
  std::vector<NonFinite> const& list() const { return list_; }

 private:
  std::vector<NonFinite> list_;
};

/// "fp32 of wte.weight (5 values), exp_avg of wpe.weight (1 value) and 3 more tensors", for
/// messages. @pre the list is not empty
std::string text_of(std::vector<NonFinite> const& list);

/// Converts a list to an array of {"tensor", "state", "count"}, and back. @throws DataError for
/// anything else
ConfigTree to_tree(std::vector<NonFinite> const& list);
std::vector<NonFinite> nonfinite_from(ConfigTree const& tree);

}  // namespace tessera::checkpoint
