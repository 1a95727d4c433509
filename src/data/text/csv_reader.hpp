#pragma once
/// Records of a CSV file with a header, as the csv loader of Hugging Face datasets reads them with
/// pandas' defaults: the column text, else the first; fields in double quotes may hold commas, line
/// ends and doubled quotes; blank lines are no records. Every field is text here: pandas reads
/// numbers and words such as NA as other types, on which run_clm.py stops.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "text/byte_stream.hpp"
#include "text/record_reader.hpp"

namespace tessera::data::detail {

class CsvReader : public RecordReader {
 public:
  /// Reads the header. @throws DataError for a file without one.
  CsvReader(std::filesystem::path const& file, TextColumn& column);
  bool skip_broken() override { return true; }  // the row has been read
  std::int64_t position() const override { return in_.position(); }
  std::string where() const override;

 private:
  bool next_raw(std::string& bytes) override;
  bool read_row(std::vector<std::string>& fields);
  bool read_field(std::string& field);
  void read_quoted(std::string& field);
  int take();

  ByteStream in_;
  std::vector<std::string> row_;
  std::vector<std::string> names_;  ///< names of all columns, for complete records; else empty
  std::size_t columns_ = 0, column_ = 0;
  std::int64_t line_ = 1, row_line_ = 1;  ///< line of the next byte; where the row begins
};

}  // namespace tessera::data::detail
