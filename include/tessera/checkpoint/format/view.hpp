#pragma once
/// view.h5 of a checkpoint: virtual datasets over all shards.

#include <filesystem>

#include "tessera/checkpoint/format/manifest.hpp"

namespace tessera::checkpoint {

/// Writes virtual datasets /<state>/<tensor> in their true shapes over all shards. File names are
/// relative; elements of a missing shard read as NaN. HDF5 needs about 10 us for each source: with
/// shards shared per node, less than a second for 1,000 ranks (docs/reference/performance.md).
void write_view(std::filesystem::path const& file, Manifest const& manifest);

/// Writes view.h5 of a checkpoint again, after it was removed or damaged.
/// @return the file. @throws DataError when the manifest is malformed, IoError
std::filesystem::path make_view(std::filesystem::path const& step_directory);

}  // namespace tessera::checkpoint
