#pragma once
/// The records of a text file, one after the other, as datasets' text and json loaders give them.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "tessera/data/text_dataset.hpp"

namespace tessera::data::detail {

class RecordReader {
 public:
  virtual ~RecordReader() = default;
  /// The next record, as well-formed UTF-8; false at the end.
  bool next(std::string& record);
  /// Ill-formed parts that became U+FFFD so far.
  std::int64_t replacements() const { return replacements_; }

 private:
  virtual bool next_raw(std::string& bytes) = 0;
  std::string bytes_;
  std::int64_t replacements_ = 0;
};

/// The reader for the file's extension. @throws ConfigError for one that is not read, IoError if
/// the file cannot be.
std::unique_ptr<RecordReader> open_records(std::filesystem::path const& file,
                                           LineBreaks line_breaks);

}  // namespace tessera::data::detail
