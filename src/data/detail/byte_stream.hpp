#pragma once
/// Reads a file sequentially, gzip-compressed or not (zlib detects it by the first bytes).

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

namespace tessera::data::detail {

class ByteStream {
 public:
  /// @throws IoError if the file cannot be opened.
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

  std::filesystem::path const& file() const { return file_; }

 private:
  bool fill();

  struct Close {
    void operator()(void* handle) const noexcept;
  };
  std::filesystem::path file_;
  std::unique_ptr<void, Close> handle_;
  std::vector<char> buffer_;
  std::size_t at_ = 0, end_ = 0;
};

}  // namespace tessera::data::detail
