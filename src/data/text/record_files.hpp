#pragma once
/// The records of several text files, one file after the other, with the rule for broken records.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "text/record_reader.hpp"

namespace tessera::data::detail {

class RecordFiles {
 public:
  /// @param column  of a data set that these files must agree with; by default the first file
  /// decides
  RecordFiles(std::vector<std::filesystem::path> files, LineBreaks line_breaks,
              BrokenRecords broken, TextColumn column = {});
  /// The next record of any file. Warns at the end of a file with replaced bytes or skipped
  /// records.
  bool next(std::string& record);
  /// File and place of the last record.
  std::string where() const { return reader_ ? reader_->where() : std::string(); }
  /// Leaves out a record that turned out to be broken, with a warning, or throws.
  void reject(BrokenRecord const& error);
  std::int64_t skipped() const { return skipped_; }
  /// Known after the first record.
  TextColumn const& column() const { return column_; }
  /// Bytes read so far and in total, as stored.
  std::int64_t position() const;
  std::int64_t total_bytes() const { return total_bytes_; }

 private:
  bool open_next();
  void end_file();
  bool next_of_file(std::string& record);

  std::vector<std::filesystem::path> files_;
  LineBreaks line_breaks_;
  BrokenRecords broken_;
  TextColumn column_;
  std::unique_ptr<RecordReader> reader_;
  std::size_t opened_ = 0;
  std::int64_t skipped_ = 0, skipped_in_file_ = 0, done_bytes_ = 0, total_bytes_ = 0;
};

}  // namespace tessera::data::detail
