#include "format/detail/direct_writer.hpp"

#include <algorithm>
#include <cstring>

namespace tessera::checkpoint::detail {
namespace {

constexpr std::int64_t page = 4096;
constexpr std::int64_t worth_it = std::int64_t{1} << 20, at_once = std::int64_t{4} << 20;

}  // namespace

DirectWriter::DirectWriter(std::filesystem::path const& path)
    : file_(File::open_write(path)), direct_(File::open_direct(path)) {
  if (direct_.is_open()) buffer_.reset(static_cast<char*>(std::aligned_alloc(page, at_once)));
}

void DirectWriter::write(void const* data, std::int64_t bytes, std::int64_t offset) {
  auto const* at = static_cast<char const*>(data);
  bool const direct = buffer_ && direct_.is_open() && bytes >= worth_it && offset % page == 0;
  std::int64_t const done = direct ? write_direct(at, bytes / page * page, offset) : 0;
  if (done == bytes) return;
  file_.write(at + done, bytes - done, offset + done);
  file_.start_writeback(offset + done, bytes - done);
}

/// @return bytes written; fewer when the file system refuses after all
std::int64_t DirectWriter::write_direct(char const* data, std::int64_t bytes, std::int64_t offset) {
  std::int64_t done = 0;
  while (done < bytes) {
    std::int64_t const count = std::min(at_once, bytes - done);
    std::memcpy(buffer_.get(), data + done, static_cast<std::size_t>(count));
    std::int64_t const put = direct_.write_aligned(buffer_.get(), count, offset + done);
    if (put < count) {
      direct_ = File();
      return done + put / page * page;
    }
    done += put;
  }
  return done;
}

void DirectWriter::finish() {
  direct_.close();
  file_.sync();
  file_.close();
}

}  // namespace tessera::checkpoint::detail
