#pragma once
/// How the records of text files are read.

#include <filesystem>
#include <string>

namespace tessera::data {

enum class LineBreaks { keep, drop };
/// What happens at a record that cannot be read: the run ends, or the record is left out with a
/// warning.
enum class BrokenRecords { stop, skip };

/// The column or member that is the text of all files of a data set: `text` if the first record has
/// it, else the first one of that record.
struct TextColumn {
  std::string name;            ///< empty: the next file decides
  std::filesystem::path file;  ///< that decided
};

}  // namespace tessera::data
