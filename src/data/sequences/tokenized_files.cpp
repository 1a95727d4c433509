#include "tessera/data/sequences/tokenized_files.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/data/text/text_files.hpp"
#include "text/record_files.hpp"
#include "tokenizer/batch_encoder.hpp"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t records_per_batch = 1000;
constexpr std::int32_t largest_short_id = 65535;

/// A file that gets its name when it is complete; until then the destructor removes it.
class NewFile {
 public:
  explicit NewFile(fs::path name) : name_(std::move(name)) {
    temporary_ = concat(name_.string(), ".tmp.", ::getpid());
    out_ = std::fopen(temporary_.c_str(), "wb");
    TESSERA_VALIDATE(out_, IoError, path_error("cannot write", name_, errno));
  }
  ~NewFile() {
    if (out_) std::fclose(out_);
    std::error_code ignored;
    if (!temporary_.empty()) fs::remove(temporary_, ignored);
  }
  NewFile(NewFile const&) = delete;
  NewFile& operator=(NewFile const&) = delete;

  void write(void const* bytes, std::size_t size) {
    TESSERA_VALIDATE(std::fwrite(bytes, 1, size, out_) == size, IoError,
                     path_error("cannot write", name_, errno), "; free some space");
  }
  template <class T>
  void put(T value) {
    write(&value, sizeof value);
  }
  void commit() {
    bool const complete = std::fflush(out_) == 0 && ::fsync(::fileno(out_)) == 0;
    int const reason = errno;
    bool const closed = std::fclose(std::exchange(out_, nullptr)) == 0;
    TESSERA_VALIDATE(complete && closed, IoError, path_error("cannot write", name_, reason));
    fs::rename(temporary_, name_);
    temporary_.clear();
  }

 private:
  fs::path name_;
  std::string temporary_;
  std::FILE* out_ = nullptr;
};

/// Documents in the format that sequence_file.hpp describes.
class DocumentWriter {
 public:
  DocumentWriter(fs::path const& file, bool is_short) : file_(file), ids_(file), short_(is_short) {}

  void append(std::span<std::int32_t const> ids) {
    lengths_.push_back(static_cast<std::int32_t>(ids.size()));
    if (!short_) return ids_.write(ids.data(), ids.size_bytes());
    narrow_.assign(ids.begin(), ids.end());
    ids_.write(narrow_.data(), narrow_.size() * sizeof narrow_[0]);
  }

  void commit() {
    NewFile index(fs::path(file_).replace_extension(".idx"));
    auto const count = static_cast<std::uint64_t>(lengths_.size());
    index.write("MMIDIDX\0\0", 9);
    index.put(std::uint64_t{1});
    index.put(std::uint8_t{static_cast<std::uint8_t>(short_ ? 8 : 4)});
    index.put(count);
    index.put(count + 1);
    index.write(lengths_.data(), lengths_.size() * sizeof lengths_[0]);
    std::int64_t offset = 0;
    for (std::int32_t const length : lengths_) {
      index.put(offset);
      offset += std::int64_t{length} * (short_ ? 2 : 4);
    }
    for (std::uint64_t i = 0; i <= count; ++i) index.put(static_cast<std::int64_t>(i));
    ids_.commit();
    index.commit();
  }

 private:
  fs::path file_;
  NewFile ids_;
  bool short_;
  std::vector<std::int32_t> lengths_;
  std::vector<std::uint16_t> narrow_;
};

void check(TokenizeRequest const& request, Tokenizer const& tokenizer) {
  TESSERA_VALIDATE(request.output.extension() == ".bin", ConfigError, "the output ",
                   request.output.string(), " does not end in .bin; its index gets .idx");
  TESSERA_VALIDATE(!request.append_eos || tokenizer.eos_id() >= 0, ConfigError,
                   "the tokenizer names no eos_token to append; leave out append_eos");
}

}  // namespace

TokenizeProgress tokenize_files(TokenizeRequest const& request, Tokenizer const& tokenizer,
                                std::function<void(TokenizeProgress const&)> const& report) {
  check(request, tokenizer);
  detail::RecordFiles files(find_text_files(request.text), request.line_breaks,
                            request.broken_records);
  detail::BatchEncoder encoder(tokenizer, request.threads);
  DocumentWriter out(request.output, tokenizer.max_id() <= largest_short_id);
  TokenizeProgress progress;
  progress.total_bytes = files.total_bytes();
  auto const finish_one = [&] {
    detail::EncodedBatch batch = encoder.pop();
    std::vector<std::int32_t> document;
    std::size_t begin = 0;
    for (std::size_t const end : batch.ends) {
      document.assign(batch.ids.begin() + static_cast<std::ptrdiff_t>(begin),
                      batch.ids.begin() + static_cast<std::ptrdiff_t>(end));
      if (request.append_eos) document.push_back(tokenizer.eos_id());
      out.append(document);
      progress.tokens += std::ssize(document);
      begin = end;
    }
    progress.records += std::ssize(batch.ends);
    progress.bytes = files.position();
    report(progress);
  };
  std::vector<std::string> batch;
  for (std::string record; files.next(record);) {
    batch.push_back(record);
    if (batch.size() < records_per_batch) continue;
    encoder.push(std::exchange(batch, {}));
    if (encoder.full()) finish_one();
  }
  if (!batch.empty()) encoder.push(std::move(batch));
  while (encoder.size() > 0) finish_one();
  TESSERA_VALIDATE(progress.tokens > 0, DataError, request.text.string(), " has no tokens");
  out.commit();
  return progress;
}

}  // namespace tessera::data
