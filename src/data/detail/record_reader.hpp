#pragma once
/// Reads the records of a text file in order, as the text and json loaders of Hugging Face datasets
/// do.

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
  /// Ill-formed sequences replaced by U+FFFD so far.
  std::int64_t replacements() const { return replacements_; }

 private:
  virtual bool next_raw(std::string& bytes) = 0;
  std::string bytes_;
  std::int64_t replacements_ = 0;
};

/// The reader for the file's extension. @throws ConfigError for an unsupported extension, IoError
/// if the file cannot be read.
std::unique_ptr<RecordReader> open_records(std::filesystem::path const& file,
                                           LineBreaks line_breaks);

}  // namespace tessera::data::detail
