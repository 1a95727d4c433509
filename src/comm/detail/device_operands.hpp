#pragma once
/// What the implementations for device memory share.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tessera/comm/collectives.hpp"

namespace tessera::comm::detail {

/// Element @p at of a view.
template <class View>
auto element(View const& view, std::int64_t at) {
  return static_cast<typename View::Byte*>(view.data()) +
         static_cast<std::size_t>(at) * size_of(view.dtype());
}

/// @throws InternalError naming @p what when the ranges of @p ranks ranks do not fit into @p numel
void check_blocks(char const* what, Blocks const& blocks, int ranks, std::int64_t numel);

/// Device memory that every rank gets or none. Collective.
std::shared_ptr<void> allocate_together(Collectives& comm, std::string const& name,
                                        memory::Purpose purpose, std::size_t bytes);

}  // namespace tessera::comm::detail
