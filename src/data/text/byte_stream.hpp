#pragma once
/// Reads a file sequentially, as it is or decompressed (gzip, zstd), by bytes or by buffered parts.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

namespace tessera::data::detail {

/// The bytes of a file in order: as they are, or decompressed (gzip, zstd).
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Reads up to @p bytes bytes; 0 at the end. @throws IoError, or DataError for damaged or
  /// truncated compressed data.
  virtual std::size_t read(char* out, std::size_t bytes) = 0;
  /// Bytes of the file read so far, as stored.
  virtual std::int64_t position() const = 0;
};

/// Detects the compression by the first bytes. @throws IoError if the file cannot be opened,
/// ConfigError for zstd in a build without libzstd.
std::unique_ptr<ByteSource> open_source(std::filesystem::path const& file);

class ByteStream {
 public:
  /// @throws IoError if the file cannot be opened, DataError for text in UTF-16 or UTF-32.
  explicit ByteStream(std::filesystem::path file);

  /// The next byte, or -1 at the end.
  int get() { return at_ < end_ || fill() ? static_cast<unsigned char>(buffer_[at_++]) : -1; }
  /// The next byte without consuming it, or -1 at the end.
  int peek() { return at_ < end_ || fill() ? static_cast<unsigned char>(buffer_[at_]) : -1; }
  /// The buffered bytes: at least one unless the stream has ended.
  std::string_view available() {
    return at_ < end_ || fill() ? std::string_view(buffer_.data() + at_, end_ - at_)
                                : std::string_view();
  }
  void skip(std::size_t bytes) { at_ += bytes; }
  /// Skips the byte order mark of UTF-8; called first.
  void skip_mark();
  /// Puts bytes back in front of what follows.
  void unread(std::string_view bytes);

  std::filesystem::path const& file() const { return file_; }
  /// Bytes of the file read so far, as stored.
  std::int64_t position() const { return source_->position(); }

 private:
  bool fill();

  std::filesystem::path file_;
  std::unique_ptr<ByteSource> source_;
  std::vector<char> buffer_;
  std::size_t at_ = 0, end_ = 0;
};

}  // namespace tessera::data::detail
