#include "text/csv_reader.hpp"

#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::data::detail {
namespace {

constexpr std::size_t max_field_bytes = std::size_t{1} << 30;  // the tokenizer's limit

}  // namespace

CsvReader::CsvReader(std::filesystem::path const& file, TextColumn& column) : in_(file) {
  in_.skip_mark();
  TESSERA_VALIDATE(read_row(row_), DataError, file.string(),
                   " has no header; the first row of a CSV file names its columns");
  columns_ = row_.size();
  if (column.complete_records)
    names_ = row_;
  else
    column_ = find_column(column, row_, file);
}

std::string CsvReader::where() const { return concat(in_.file().string(), " line ", row_line_); }

/// "\r\n" and "\r" are taken as "\n".
int CsvReader::take() {
  int c = in_.get();
  if (c == '\r') {
    if (in_.peek() == '\n') in_.get();
    c = '\n';
  }
  line_ += c == '\n';
  return c;
}

/// The rest of a field in quotes. Line ends stay as they are in the file.
void CsvReader::read_quoted(std::string& field) {
  while (true) {
    int const c = in_.get();
    TESSERA_VALIDATE(c >= 0, DataError, in_.file().string(), " line ", row_line_,
                     ": the file ends inside a field in quotes");
    TESSERA_VALIDATE(field.size() < max_field_bytes, DataError, in_.file().string(), " line ",
                     row_line_, ": a field has more than 1 GiB; a quote may be missing");
    line_ += c == '\n';
    if (c == '"') {
      if (in_.peek() != '"') return;
      in_.get();
    }
    field.push_back(static_cast<char>(c));
  }
}

/// Reads up to a comma (true) or the end of the row (false).
bool CsvReader::read_field(std::string& field) {
  field.clear();
  if (in_.peek() == '"') {
    in_.get();
    read_quoted(field);
  }
  for (int c = take();; c = take()) {
    if (c == ',') return true;
    if (c < 0 || c == '\n') return false;
    field.push_back(static_cast<char>(c));
  }
}

bool CsvReader::read_row(std::vector<std::string>& fields) {
  while (in_.peek() == '\n' || in_.peek() == '\r') take();
  if (in_.peek() < 0) return false;
  row_line_ = line_;
  fields.clear();
  for (bool more = true; more;) more = read_field(fields.emplace_back());
  return true;
}

bool CsvReader::next_raw(std::string& bytes) {
  if (!read_row(row_)) return false;
  TESSERA_VALIDATE(row_.size() <= columns_, data::detail::BrokenRecord, in_.file().string(),
                   " line ", row_line_, " has ", row_.size(), " fields, and the header names ",
                   columns_, "; put fields with commas into double quotes");
  TESSERA_VALIDATE(row_.size() > column_, data::detail::BrokenRecord, in_.file().string(), " line ",
                   row_line_, " has ", row_.size(), " fields; the text is field ", column_ + 1);
  if (!names_.empty()) {
    ConfigTree record = ConfigTree::object();
    for (std::size_t i = 0; i < row_.size(); ++i) {
      std::string text;
      append_valid_utf8(row_[i], text);
      record.set(names_[i], std::move(text));
    }
    bytes = record.dump();
    return true;
  }
  bytes = row_[column_];
  return true;
}

}  // namespace tessera::data::detail
