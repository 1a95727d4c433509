#pragma once
/// What the parts of a manifest must be to each other.

#include <string>

#include "tessera/checkpoint/format/manifest.hpp"

namespace tessera::checkpoint::detail {

/// Names are unique, the extents of each tensor cover it once and are inside their shard files, and
/// every chunk has its checksum. Sorts the extents by offset.
/// @param source names the manifest in messages
/// @throws DataError
void check_consistency(Manifest& m, std::string const& source);

}  // namespace tessera::checkpoint::detail
