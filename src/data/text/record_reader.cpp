#include "text/record_reader.hpp"

#include <algorithm>

#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/text.hpp"
#include "tessera/data/text/text_files.hpp"
#include "text/byte_stream.hpp"
#include "text/csv_reader.hpp"

namespace tessera::data::detail {
namespace {

/// Lines with universal newlines.
class LineReader : public RecordReader {
 public:
  LineReader(std::filesystem::path const& file, LineBreaks line_breaks, bool complete_records)
      : in_(file), line_breaks_(line_breaks), complete_records_(complete_records) {}
  std::int64_t position() const override { return in_.position(); }
  std::string where() const override { return concat(in_.file().string(), " line ", line_); }

 private:
  bool next_raw(std::string& bytes) override {
    bytes.clear();
    if (in_.peek() < 0) return false;
    ++line_;
    read_line(bytes);
    if (complete_records_) {
      std::string text;
      append_valid_utf8(bytes, text);
      bytes = ConfigTree().set("text", std::move(text)).dump();
    }
    return true;
  }

  void read_line(std::string& bytes) {
    while (true) {
      std::string_view const here = in_.available();
      if (here.empty()) return;  // the last line has no end
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
  }

  static constexpr std::size_t max_line_bytes = std::size_t{1} << 30;  // the tokenizer's limit
  ByteStream in_;
  LineBreaks line_breaks_;
  bool complete_records_;
  std::int64_t line_ = 0;
};

/// Consecutive objects (JSON lines) or one array of objects; holds one object at a time.
class JsonReader : public RecordReader {
 public:
  JsonReader(std::filesystem::path const& file, TextColumn& column) : in_(file), column_(column) {
    in_.skip_mark();
    in_array_ = skip_space() == '[';
    if (in_array_) in_.get();
  }
  std::int64_t position() const override { return in_.position(); }

  std::string where() const override {
    return concat(in_.file().string(), " line ", record_line_, ", record ", number_);
  }

  /// Objects one after the other: continues in the line after the one where the broken record
  /// begins, because its braces and quotes may not match. In an array: after the object.
  bool skip_broken() override {
    if (in_array_) return can_skip_;
    std::size_t const line_end = object_.find('\n');
    if (line_end != std::string::npos) {
      in_.unread(std::string_view(object_).substr(line_end + 1));
      line_ = record_line_ + 1;
    } else {
      for (int c = in_.peek(); c >= 0 && c != '\n'; c = in_.peek()) in_.get();
    }
    return true;
  }

 private:
  static constexpr std::size_t max_object_bytes = std::size_t{64} << 20;  // ConfigTree's limit

  int take() {
    int const c = in_.get();
    line_ += c == '\n';
    return c;
  }

  int skip_space() {
    while (true) {
      int const c = in_.peek();
      if (c != ' ' && c != '\t' && c != '\r' && c != '\n') return c;
      take();
    }
  }

  /// Moves to the start of the next element of the array; false at the end.
  bool find_element() {
    int c = skip_space();
    if (c == ',' && number_ > 0) {
      take();
      c = skip_space();
    } else if (c == ']') {
      take();
      TESSERA_VALIDATE(skip_space() < 0, DataError, in_.file().string(), " line ", line_,
                       ": text follows the end of the array");
      return false;
    } else {
      TESSERA_VALIDATE(number_ == 0 || c < 0, DataError, in_.file().string(), " line ", line_,
                       ": a comma is missing after record ", number_);
    }
    TESSERA_VALIDATE(c >= 0, DataError, in_.file().string(),
                     " is cut short: the array is not closed");
    return true;
  }

  /// Moves to the start of the next object; false at the end.
  bool find_object() {
    object_.clear();
    can_skip_ = false;
    if (in_array_ && !find_element()) return false;
    int const c = skip_space();
    if (c < 0) return false;
    ++number_;
    record_line_ = line_;
    TESSERA_VALIDATE(c == '{', data::detail::BrokenRecord, where(),
                     " is not an object; expected {\"text\": \"...\"}");
    return true;
  }

  /// Copies one object: up to the brace that closes it, outside strings.
  void read_object() {
    int depth = 0;
    bool in_string = false;
    do {
      int const c = take();
      TESSERA_VALIDATE(c >= 0, data::detail::BrokenRecord, where(),
                       " is cut short: the file ends inside it");
      TESSERA_VALIDATE(object_.size() < max_object_bytes, data::detail::BrokenRecord, where(),
                       " has more than ", human_bytes(static_cast<std::int64_t>(max_object_bytes)));
      object_.push_back(static_cast<char>(c));
      if (in_string && c == '\\')
        object_.push_back(static_cast<char>(std::max(take(), 0)));
      else if (c == '"')
        in_string = !in_string;
      else if (!in_string)
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    } while (depth > 0);
    can_skip_ = true;
  }

  ConfigTree parse_object() {
    std::string text;
    append_valid_utf8(object_, text);
    try {
      return ConfigTree::parse_record(text, where());
    } catch (DataError const& error) {
      throw BrokenRecord(error.what());
    }
  }

  bool next_raw(std::string& bytes) override {
    if (!find_object()) return false;
    read_object();
    if (column_.complete_records) {
      bytes = object_;
      return true;
    }
    ConfigTree const tree = parse_object();
    if (column_.name.empty() && !tree.as_object().empty())
      column_ = {tree.contains("text") ? "text" : tree.as_object().front().first, in_.file()};
    if (number_ == 1 && column_.name == "prompt" && tree.contains("completion"))
      log::warning(concat(in_.file().string(),
                          " has prompt and completion; the text is 'prompt' as in run_clm.py. "
                          "--task sft trains on the completion"));
    std::string const& column = column_.name;
    std::string const first =
        column_.file == in_.file() ? "the first record" : "the first of " + column_.file.string();
    auto const* text = tree.find(column);
    TESSERA_VALIDATE(text, data::detail::BrokenRecord, where(), " has no member '", column,
                     "', which ", first, " has");
    TESSERA_VALIDATE(std::ranges::count(tree.as_object(), column, &ConfigTree::Member::first) == 1,
                     data::detail::BrokenRecord, where(), " has the member '", column, "' twice");
    TESSERA_VALIDATE(column == "text" || !tree.contains("text"), data::detail::BrokenRecord,
                     where(), " has a member 'text', which ", first, " lacks");
    TESSERA_VALIDATE(text->is_string(), data::detail::BrokenRecord, where(), ": '", column, "' is ",
                     text->type_name(),
                     "; expected a string. Write one "
                     "object per record: {\"text\": \"...\"}",
                     text->is_array() ? ", or read messages with --task sft" : "");
    bytes = text->as_string();
    return true;
  }

  ByteStream in_;
  bool in_array_ = false;
  bool can_skip_ = false;                    ///< the end of the current object is known
  std::int64_t number_ = 0;                  ///< number of the current record, from 1
  std::int64_t line_ = 1, record_line_ = 1;  ///< line of the next byte; where the record begins
  TextColumn& column_;
  std::string object_;
};

}  // namespace

std::size_t find_column(TextColumn& column, std::vector<std::string> const& names,
                        std::filesystem::path const& file) {
  auto const place = [&](std::string const& name) { return std::ranges::find(names, name); };
  bool const has_text = place("text") != names.end();
  if (column.name.empty()) column = {has_text ? "text" : names.front(), file};
  auto const found = place(column.name);
  TESSERA_VALIDATE(found != names.end(), DataError, file.string(), " has no column '", column.name,
                   "', which ", column.file.string(), " has; give all files the same columns");
  TESSERA_VALIDATE(column.name == "text" || !has_text, DataError, file.string(),
                   " has a column 'text', which ", column.file.string(), " lacks");
  return static_cast<std::size_t>(found - names.begin());
}

bool RecordReader::next(std::string& record) {
  if (!next_raw(bytes_)) return false;
  record.clear();
  replacements_ += static_cast<std::int64_t>(append_valid_utf8(bytes_, record));
  return true;
}

std::unique_ptr<RecordReader> open_records(std::filesystem::path const& file,
                                           LineBreaks line_breaks, TextColumn& column) {
  std::string const kind = kind_of_file(file).string();
  if (kind == ".txt")
    return std::make_unique<LineReader>(file, line_breaks, column.complete_records);
  if (kind == ".json" || kind == ".jsonl") return std::make_unique<JsonReader>(file, column);
  if (kind == ".csv") return std::make_unique<CsvReader>(file, column);
  if (kind == ".parquet" || kind == ".arrow") return open_arrow(file, column);
  throw ConfigError(
      concat("cannot read ", file.string(),
             ": unknown extension; Tessera reads .txt (one record per line), .json or .jsonl "
             "(objects with a member \"text\"), .csv (a column text), each also with .gz or .zst, "
             ".parquet and .arrow, and .bin of token ids; rename the file"));
}

}  // namespace tessera::data::detail
