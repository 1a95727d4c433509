#pragma once
/// view.h5 of a checkpoint: virtual datasets over all shards.

#include <filesystem>

#include "tessera/checkpoint/format/manifest.hpp"

namespace tessera::checkpoint {

/// view.h5: virtual datasets /<state>/<tensor> in their true shapes over all shards; file names are
/// relative, holes read as NaN. Long lists of sources are written as bytes (virtual_sources.hpp)
/// and read back through HDF5; should that fail, HDF5 writes them.
void write_view(std::filesystem::path const& file, Manifest const& manifest);

/// Writes view.h5 of a checkpoint anew, after it was removed or damaged; about 1 s for a million
/// pieces.
/// @return the file. @throws DataError when the manifest is malformed, IoError
std::filesystem::path make_view(std::filesystem::path const& step_directory);

}  // namespace tessera::checkpoint
