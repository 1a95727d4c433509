#pragma once
/// The memory policy of buffers: memory/buffer.hpp.

#include <cstddef>
#include <vector>

namespace tessera::memory::detail {

/// Pages of [@p data, @p data + @p bytes) that nobody has touched yet come from numa_nodes().
/// @p data is the start of a page. No effect without nodes.
void prefer_numa_nodes(void* data, std::size_t bytes) noexcept;

/// Within the scope, pages that this thread touches first, also inside a driver, come from
/// numa_nodes().
class NumaScope {
 public:
  NumaScope() noexcept;
  ~NumaScope();
  NumaScope(NumaScope const&) = delete;
  NumaScope& operator=(NumaScope const&) = delete;

 private:
  int mode_ = -1;                     ///< policy before; -1: unchanged
  std::vector<unsigned long> nodes_;  ///< nodes of the policy before
};

}  // namespace tessera::memory::detail
