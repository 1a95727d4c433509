#pragma once
/// Which files a value such as --train_file names.

#include <filesystem>
#include <string>
#include <vector>

namespace tessera::data {

/// A file that exists; otherwise the parts between commas, each a file or a pattern with *, ? and
/// [...] (sorted matches). A directory of datasets.save_to_disk gives its Arrow files. @throws
/// IoError for a name without a file, ConfigError for Arrow and Parquet files where the build lacks
/// Arrow's libraries; the message has the line that converts them.
std::vector<std::filesystem::path> find_text_files(std::filesystem::path const& named);

/// The parts between commas, or the only one if a file of the complete name exists. @throws
/// ConfigError for an empty part.
std::vector<std::filesystem::path> parts_of_list(std::filesystem::path const& named);

/// The extension without that of a compression: ".jsonl" of "a.jsonl.zst".
std::filesystem::path kind_of_file(std::filesystem::path const& file);

// How the records of text files are read.

/// Whether the text of a line of a .txt file ends with its line break.
enum class LineBreaks { keep, drop };
/// What happens at a record that cannot be read: the run ends, or the record is left out with a
/// warning.
enum class BrokenRecords { stop, skip };

/// The column or member that is the text of all files of a data set: `text` if the first record has
/// it, else the first one of that record.
struct TextColumn {
  std::string name;            ///< empty: the next file decides
  std::filesystem::path file;  ///< that decided
  /// A record is a JSON object with all columns, of a line of a .txt file {"text": line}.
  bool complete_records = false;
};

}  // namespace tessera::data
