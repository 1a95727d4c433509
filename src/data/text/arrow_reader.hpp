#pragma once
/// Records of Parquet and Arrow files, by Apache Arrow's libraries where the build has them.

#include <filesystem>
#include <memory>
#include <vector>

#include "text/record_reader.hpp"

namespace tessera::data::detail {

/// The build has Arrow's libraries.
bool reads_arrow();

/// Is it a directory that datasets.save_to_disk wrote?
bool is_saved_dataset(std::filesystem::path const& folder);
/// Its Arrow files in their order; of a DatasetDict those of the split train. @throws DataError for
/// a directory that is not as save_to_disk writes it.
std::vector<std::filesystem::path> files_of_saved_dataset(std::filesystem::path const& folder);

/// A record is the column text, else the first one, of each row; it must hold strings. .arrow is
/// Arrow's stream format, as datasets writes it, or its file format.
std::unique_ptr<RecordReader> open_arrow(std::filesystem::path const& file, TextColumn& column);

}  // namespace tessera::data::detail
