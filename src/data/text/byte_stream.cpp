#include "text/byte_stream.hpp"

#include <algorithm>

#include "tessera/core/utf8.hpp"

namespace tessera::data::detail {
namespace {
constexpr std::size_t buffer_bytes = std::size_t{1} << 20;
}  // namespace

ByteStream::ByteStream(std::filesystem::path file)
    : file_(std::move(file)), source_(open_source(file_)), buffer_(buffer_bytes) {
  require_narrow(available(), file_.string());
}

void ByteStream::skip_mark() {
  std::string_view const first = available();
  skip(first.size() - without_mark(first).size());
}

bool ByteStream::fill() {
  at_ = 0;
  end_ = source_->read(buffer_.data(), buffer_.size());
  return end_ > 0;
}

void ByteStream::unread(std::string_view bytes) {
  std::vector<char> joined(bytes.begin(), bytes.end());
  joined.insert(joined.end(), buffer_.begin() + static_cast<std::ptrdiff_t>(at_),
                buffer_.begin() + static_cast<std::ptrdiff_t>(end_));
  at_ = 0;
  end_ = joined.size();
  joined.resize(std::max(joined.size(), buffer_bytes));
  buffer_ = std::move(joined);
}

}  // namespace tessera::data::detail
