#include "text/record_reader.hpp"

#ifdef TESSERA_HAVE_ARROW
#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>
#endif

#include <algorithm>

#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"

namespace tessera::data::detail {

namespace fs = std::filesystem;

bool is_saved_dataset(fs::path const& folder) {
  return fs::exists(folder / "dataset_dict.json") || fs::exists(folder / "state.json");
}

std::vector<fs::path> files_of_saved_dataset(fs::path const& folder) {
  if (fs::exists(folder / "dataset_dict.json")) {
    TESSERA_VALIDATE(fs::exists(folder / "train/state.json"), DataError, folder.string(),
                     " holds several data sets and no split train; name one of its directories");
    return files_of_saved_dataset(folder / "train");
  }
  fs::path const state = folder / "state.json";
  std::vector<fs::path> out;
  ConfigTree const tree = ConfigTree::read(state.string());
  for (auto const& entry : tree.at("_data_files").as_array())
    out.push_back(folder / fs::path(entry.at("filename").as_string()).filename());
  TESSERA_VALIDATE(!out.empty(), DataError, state.string(), " names no _data_files");
  for (auto const& file : out)
    TESSERA_VALIDATE(fs::exists(file), DataError, file.string(), ", which ", state.string(),
                     " names, does not exist; copy the complete directory");
  return out;
}

#ifdef TESSERA_HAVE_ARROW

bool reads_arrow() { return true; }

namespace {

/// Arrow's value, or a DataError with its message.
template <class T>
T value_of(arrow::Result<T> result, fs::path const& file) {
  TESSERA_VALIDATE(result.ok(), DataError, file.string(),
                   " cannot be read: ", result.status().message());
  return std::move(result).ValueUnsafe();
}

template <class Array>
Array const& as(arrow::Array const& array) {
  return static_cast<Array const&>(array);
}

/// A value of a column: strings, numbers, booleans, lists and structs of them; null for others.
ConfigTree tree_of(arrow::Array const& array, std::int64_t row) {
  if (array.IsNull(row)) return {};
  auto const list = [](arrow::Array const& items) {
    ConfigTree out = ConfigTree::array();
    for (std::int64_t i = 0; i < items.length(); ++i) out.push_back(tree_of(items, i));
    return out;
  };
  switch (array.type_id()) {
    case arrow::Type::STRING:
      return as<arrow::StringArray>(array).GetView(row);
    case arrow::Type::LARGE_STRING:
      return as<arrow::LargeStringArray>(array).GetView(row);
    case arrow::Type::BOOL:
      return as<arrow::BooleanArray>(array).Value(row);
    case arrow::Type::INT32:
      return std::int64_t{as<arrow::Int32Array>(array).Value(row)};
    case arrow::Type::INT64:
      return std::int64_t{as<arrow::Int64Array>(array).Value(row)};
    case arrow::Type::DOUBLE:
      return as<arrow::DoubleArray>(array).Value(row);
    case arrow::Type::LIST:
      return list(*as<arrow::ListArray>(array).value_slice(row));
    case arrow::Type::LARGE_LIST:
      return list(*as<arrow::LargeListArray>(array).value_slice(row));
    case arrow::Type::STRUCT: {
      ConfigTree out = ConfigTree::object();
      auto const& fields = as<arrow::StructArray>(array);
      for (int i = 0; i < fields.num_fields(); ++i)
        out.set(array.type()->field(i)->name(), tree_of(*fields.field(i), row));
      return out;
    }
    default:
      return {};
  }
}

int text_column(arrow::Schema const& schema, fs::path const& file, TextColumn& shared) {
  TESSERA_VALIDATE(schema.num_fields() > 0, DataError, file.string(), " has no columns");
  if (shared.complete_records) return 0;
  int const column = static_cast<int>(find_column(shared, schema.field_names(), file));
  auto const type = schema.field(column)->type();
  TESSERA_VALIDATE(type->id() == arrow::Type::STRING || type->id() == arrow::Type::LARGE_STRING,
                   DataError, file.string(), ": the column '", schema.field(column)->name(),
                   "' holds ", type->ToString(),
                   "; expected strings in a column text, or in the first");
  return column;
}

class ArrowReader : public RecordReader {
 public:
  ArrowReader(fs::path const& file, TextColumn& shared)
      : file_(file),
        shared_(shared),
        in_(value_of(arrow::io::ReadableFile::Open(file.string()), file)) {
    if (file.extension() == ".parquet")
      open_parquet();
    else
      open_arrow_file();
  }
  /// A stream is read in order; of the other forms the part of the rows counts.
  std::int64_t position() const override {
    if (rows_ > 0)
      return static_cast<std::int64_t>(static_cast<double>(bytes_of_file()) *
                                       static_cast<double>(number_) / static_cast<double>(rows_));
    auto const at = in_->Tell();
    return at.ok() ? *at : 0;
  }
  std::string where() const override { return concat(file_.string(), " record ", number_); }
  /// The records are rows: the next one begins after a row that has no text.
  bool skip_broken() override { return true; }

 private:
  std::int64_t bytes_of_file() const {
    auto const bytes = in_->GetSize();
    return bytes.ok() ? *bytes : 0;
  }

  void open_parquet() {
    parquet::arrow::FileReaderBuilder builder;
    auto const opened = builder.Open(in_);
    TESSERA_VALIDATE(opened.ok(), DataError, file_.string(), " cannot be read: ", opened.message());
    builder.properties(rows_in_memory());
    parquet_ = value_of(builder.Build(), file_);
    rows_ = parquet_->parquet_reader()->metadata()->num_rows();
    std::shared_ptr<arrow::Schema> schema;
    auto const status = parquet_->GetSchema(&schema);
    TESSERA_VALIDATE(status.ok(), DataError, file_.string(), ": ", status.message());
    int const column = text_column(*schema, file_, shared_);
    std::vector<int> groups(static_cast<std::size_t>(parquet_->num_row_groups()));
    for (std::size_t i = 0; i < groups.size(); ++i) groups[i] = static_cast<int>(i);
    batches_ = value_of(shared_.complete_records
                            ? parquet_->GetRecordBatchReader(groups)
                            : parquet_->GetRecordBatchReader(groups, {leaf_of(*schema, column)}),
                        file_);
  }

  static parquet::ArrowReaderProperties rows_in_memory() {
    parquet::ArrowReaderProperties out;
    out.set_batch_size(1024);
    return out;
  }

  /// Parquet counts the leaves of nested columns.
  int leaf_of(arrow::Schema const& schema, int column) const {
    int const leaf =
        parquet_->parquet_reader()->metadata()->schema()->ColumnIndex(schema.field(column)->name());
    return leaf >= 0 ? leaf : column;
  }

  void open_arrow_file() {
    auto const magic = value_of(in_->ReadAt(0, 6), file_);
    if (magic->ToString() == "ARROW1") {
      file_reader_ = value_of(arrow::ipc::RecordBatchFileReader::Open(in_), file_);
      column_ = text_column(*file_reader_->schema(), file_, shared_);
      rows_ = value_of(file_reader_->CountRows(), file_);
    } else {
      auto const at_start = in_->Seek(0);
      TESSERA_VALIDATE(at_start.ok(), IoError, file_.string(), ": ", at_start.message());
      batches_ = value_of(arrow::ipc::RecordBatchStreamReader::Open(in_), file_);
      column_ = text_column(*batches_->schema(), file_, shared_);
    }
  }

  std::shared_ptr<arrow::RecordBatch> next_batch() {
    if (!file_reader_) return value_of(batches_->Next(), file_);
    if (batch_number_ == file_reader_->num_record_batches()) return nullptr;
    return value_of(file_reader_->ReadRecordBatch(batch_number_++), file_);
  }

  bool next_raw(std::string& bytes) override {
    while (!array_ || row_ == array_->length()) {
      auto const batch = next_batch();
      if (!batch) return false;
      array_ = shared_.complete_records ? value_of(batch->ToStructArray(), file_)
                                        : batch->column(column_);
      row_ = 0;
      auto const valid = array_->ValidateFull();
      TESSERA_VALIDATE(valid.ok(), DataError, file_.string(), " is damaged after record ", number_,
                       ": ", valid.message());
    }
    ++number_;
    std::int64_t const row = row_++;
    if (shared_.complete_records) {
      bytes = tree_of(*array_, row).dump();
      return true;
    }
    TESSERA_VALIDATE(!array_->IsNull(row), data::detail::BrokenRecord, file_.string(), " record ",
                     number_, " is null; expected a string");
    if (array_->type_id() == arrow::Type::STRING)
      bytes = static_cast<arrow::StringArray const&>(*array_).GetView(row);
    else
      bytes = static_cast<arrow::LargeStringArray const&>(*array_).GetView(row);
    return true;
  }

  fs::path file_;
  TextColumn& shared_;
  std::shared_ptr<arrow::io::ReadableFile> in_;
  std::unique_ptr<parquet::arrow::FileReader> parquet_;
  std::shared_ptr<arrow::RecordBatchReader> batches_;
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> file_reader_;
  std::shared_ptr<arrow::Array> array_;
  int column_ = 0, batch_number_ = 0;
  std::int64_t row_ = 0, number_ = 0;
  std::int64_t rows_ = 0;  ///< rows of the file; 0 for a stream
};

}  // namespace

std::unique_ptr<RecordReader> open_arrow(fs::path const& file, TextColumn& column) {
  try {
    return std::make_unique<ArrowReader>(file, column);
  } catch (parquet::ParquetException const& error) {
    throw DataError(concat(file.string(), " cannot be read: ", error.what()));
  }
}

#else

bool reads_arrow() { return false; }

std::unique_ptr<RecordReader> open_arrow(fs::path const& file, TextColumn& /*column*/) {
  throw ConfigError(
      concat("cannot read ", file.string(),
             ": this Tessera was built without Apache Arrow; build it with "
             "-DTESSERA_ENABLE_ARROW=ON, or convert the file with Python's datasets"));
}

#endif

}  // namespace tessera::data::detail
