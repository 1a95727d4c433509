#pragma once
/// Reads the records of text files in order, as the text, json and csv loaders of Hugging Face
/// datasets do.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/data/text/text_files.hpp"

namespace tessera::data::detail {

/// A record that cannot be read; those after it may be.
struct BrokenRecord : DataError {
  using DataError::DataError;
};

class RecordReader {
 public:
  virtual ~RecordReader() = default;
  /// The next record, as well-formed UTF-8; false at the end. @throws BrokenRecord, after which
  /// skip_broken() continues with the following records.
  bool next(std::string& record);
  /// Moves behind a broken record. @returns false if the end of that record cannot be found.
  virtual bool skip_broken() { return false; }
  /// File and place of the last record, for messages.
  virtual std::string where() const = 0;
  /// Ill-formed sequences replaced by U+FFFD so far.
  std::int64_t replacements() const { return replacements_; }
  /// Bytes of the file read so far, as stored.
  virtual std::int64_t position() const = 0;

 private:
  virtual bool next_raw(std::string& bytes) = 0;
  std::string bytes_;
  std::int64_t replacements_ = 0;
};

/// The place of the data set's column in a header, which decides on it if no file before did.
/// @throws DataError when the header has no such column
std::size_t find_column(TextColumn& column, std::vector<std::string> const& names,
                        std::filesystem::path const& file);

/// The reader for the file's extension. @p column outlives it. @throws ConfigError for an
/// unsupported extension, IoError if the file cannot be read.
std::unique_ptr<RecordReader> open_records(std::filesystem::path const& file,
                                           LineBreaks line_breaks, TextColumn& column);

// Records of Parquet and Arrow files, by Apache Arrow's libraries where the build has them.

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
