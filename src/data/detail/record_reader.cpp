#include "detail/record_reader.hpp"

#include <algorithm>

#include "detail/byte_stream.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/core/utf8.hpp"

namespace tessera::data::detail {
namespace {

/// Lines with universal newlines.
class LineReader : public RecordReader {
 public:
  LineReader(std::filesystem::path const& file, LineBreaks line_breaks)
      : in_(file), line_breaks_(line_breaks) {}

 private:
  bool next_raw(std::string& bytes) override {
    bytes.clear();
    if (in_.peek() < 0) return false;
    while (true) {
      std::string_view const here = in_.available();
      if (here.empty()) return true;  // the last line has no end
      std::size_t const end = std::min(here.find_first_of("\r\n"), here.size());
      bytes.append(here.substr(0, end));
      TESSERA_VALIDATE(bytes.size() < max_line_bytes, DataError, in_.file().string(),
                       ": a line has more than ",
                       human_bytes(static_cast<std::int64_t>(max_line_bytes)), "; break it up");
      in_.skip(end);
      if (end < here.size()) break;
    }
    if (in_.get() == '\r' && in_.peek() == '\n') in_.get();
    if (line_breaks_ == LineBreaks::keep) bytes.push_back('\n');
    return true;
  }

  static constexpr std::size_t max_line_bytes = std::size_t{1} << 30;  // the tokenizer's limit
  ByteStream in_;
  LineBreaks line_breaks_;
};

/// Consecutive objects (JSON lines) or one array of objects; holds one object at a time.
class JsonReader : public RecordReader {
 public:
  explicit JsonReader(std::filesystem::path const& file) : in_(file) {
    in_array_ = skip_space() == '[';
    if (in_array_) in_.get();
  }

 private:
  static constexpr std::size_t max_object_bytes = std::size_t{64} << 20;  // ConfigTree's limit

  std::string where() const { return concat(in_.file().string(), " record ", number_); }

  int skip_space() {
    while (true) {
      int const c = in_.peek();
      if (c != ' ' && c != '\t' && c != '\r' && c != '\n') return c;
      in_.get();
    }
  }

  /// Moves to the start of the next object; false at the end.
  bool find_object() {
    int c = skip_space();
    if (in_array_) {
      if (c == ',' && number_ > 0) {
        in_.get();
        c = skip_space();
      } else if (c == ']') {
        in_.get();
        TESSERA_VALIDATE(skip_space() < 0, DataError, in_.file().string(),
                         ": text follows the end of the array");
        return false;
      } else {
        TESSERA_VALIDATE(number_ == 0 || c < 0, DataError, in_.file().string(),
                         ": a comma is missing after record ", number_);
      }
      TESSERA_VALIDATE(c >= 0, DataError, in_.file().string(),
                       " is cut short: the array is not closed");
    }
    if (c < 0) return false;
    ++number_;
    TESSERA_VALIDATE(c == '{', DataError, where(),
                     " is not an object; expected {\"text\": \"...\"}");
    return true;
  }

  /// Copies one object: up to the brace that closes it, outside strings.
  void read_object(std::string& object) {
    object.clear();
    int depth = 0;
    bool in_string = false;
    do {
      int const c = in_.get();
      TESSERA_VALIDATE(c >= 0, DataError, where(), " is cut short: the file ends inside it");
      TESSERA_VALIDATE(object.size() < max_object_bytes, DataError, where(), " has more than ",
                       human_bytes(static_cast<std::int64_t>(max_object_bytes)));
      object.push_back(static_cast<char>(c));
      if (in_string && c == '\\')
        object.push_back(static_cast<char>(std::max(in_.get(), 0)));
      else if (c == '"')
        in_string = !in_string;
      else if (!in_string)
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    } while (depth > 0);
  }

  bool next_raw(std::string& bytes) override {
    if (!find_object()) return false;
    read_object(object_);
    bytes.clear();
    append_valid_utf8(object_, bytes);
    ConfigTree const tree = ConfigTree::parse(bytes, where());
    if (number_ == 1 && !tree.as_object().empty())
      column_ = tree.contains("text") ? "text" : tree.as_object().front().first;
    auto const* text = tree.find(column_);
    TESSERA_VALIDATE(text, DataError, where(), " has no member '", column_,
                     "', which the first record has");
    TESSERA_VALIDATE(column_ == "text" || !tree.contains("text"), DataError, where(),
                     " has a member 'text', which the first record lacks");
    TESSERA_VALIDATE(text->is_string(), DataError, where(), ": '", column_, "' is ",
                     text->type_name(),
                     "; expected a string. Write one "
                     "object per record: {\"text\": \"...\"}");
    bytes = text->as_string();
    return true;
  }

  ByteStream in_;
  bool in_array_ = false;
  std::int64_t number_ = 0;  ///< of the current record, from 1
  std::string column_, object_;
};

}  // namespace

bool RecordReader::next(std::string& record) {
  if (!next_raw(bytes_)) return false;
  record.clear();
  replacements_ += static_cast<std::int64_t>(append_valid_utf8(bytes_, record));
  return true;
}

std::unique_ptr<RecordReader> open_records(std::filesystem::path const& file,
                                           LineBreaks line_breaks) {
  std::filesystem::path const name = file.extension() == ".gz" ? file.stem() : file;
  std::string const kind = name.extension().string();
  if (kind == ".txt") return std::make_unique<LineReader>(file, line_breaks);
  if (kind == ".json" || kind == ".jsonl") return std::make_unique<JsonReader>(file);
  throw ConfigError(
      concat("cannot read ", file.string(),
             ": unknown extension; Tessera reads .txt (one record per line), and .json or .jsonl "
             "(objects with a member \"text\"); ",
             kind == ".csv" ? "convert the .csv file to one of these" : "rename the file"));
}

}  // namespace tessera::data::detail
