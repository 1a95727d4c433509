#pragma once
/// What is wrong with batch sizes that do not fit together.

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::config::detail {

struct BatchFactor {
  std::string name;       ///< as it was written: a key or a flag
  std::int64_t size = 0;  ///< 0: it was not written, and is derived
};

/// Names the sizes that were written, and only those. @pre train_batch_size @p total is not the
/// product of @p factors
std::string batch_problem(std::int64_t total, std::vector<BatchFactor> const& factors);

}  // namespace tessera::config::detail
