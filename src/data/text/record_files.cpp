#include "text/record_files.hpp"

#include "tessera/core/log.hpp"
#include "tessera/core/text.hpp"

namespace tessera::data::detail {
namespace {

constexpr std::int64_t named_records = 3;  // further ones are only counted

/// 0 for what is not a regular file.
std::int64_t bytes_of(std::filesystem::path const& file) {
  std::error_code unknown;
  auto const bytes = std::filesystem::file_size(file, unknown);
  return unknown ? 0 : static_cast<std::int64_t>(bytes);
}

}  // namespace

RecordFiles::RecordFiles(std::vector<std::filesystem::path> files, LineBreaks line_breaks,
                         BrokenRecords broken, TextColumn column)
    : files_(std::move(files)),
      line_breaks_(line_breaks),
      broken_(broken),
      column_(std::move(column)) {
  for (auto const& file : files_) total_bytes_ += bytes_of(file);
}

bool RecordFiles::open_next() {
  if (opened_ == files_.size()) return false;
  reader_ = open_records(files_[opened_++], line_breaks_, column_);
  skipped_in_file_ = 0;
  return true;
}

void RecordFiles::end_file() {
  auto const& file = files_[opened_ - 1];
  if (reader_->replacements() > 0)
    log::warning(concat(file.string(), " is not valid UTF-8 in ",
                        counted(reader_->replacements(), "place"), "; each is replaced by U+FFFD"));
  if (skipped_in_file_ > 0)
    log::warning(concat(file.string(), ": skipped ", counted(skipped_in_file_, "broken record")));
  done_bytes_ += bytes_of(file);
  reader_.reset();
}

bool RecordFiles::next_of_file(std::string& record) {
  while (true) {
    try {
      return reader_->next(record);
    } catch (BrokenRecord const& error) {
      if (broken_ == BrokenRecords::stop || !reader_->skip_broken()) throw;
      reject(error);
    }
  }
}

void RecordFiles::reject(BrokenRecord const& error) {
  if (broken_ == BrokenRecords::stop) throw error;
  ++skipped_;
  if (++skipped_in_file_ <= named_records)
    log::warning(concat("skipped a broken record: ", error.what()));
}

bool RecordFiles::next(std::string& record) {
  while (reader_ || open_next()) {
    if (next_of_file(record)) return true;
    end_file();
  }
  return false;
}

std::int64_t RecordFiles::position() const {
  return done_bytes_ + (reader_ ? reader_->position() : 0);
}

}  // namespace tessera::data::detail
