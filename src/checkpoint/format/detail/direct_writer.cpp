#include "format/detail/direct_writer.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "tessera/core/process.hpp"

namespace tessera::checkpoint::detail {
namespace {

constexpr std::int64_t page = 4096;
constexpr std::int64_t worth_it = std::int64_t{1} << 20, at_once = std::int64_t{4} << 20;

/// On huge pages a request to the disk has few pieces of memory.
char* transfer_buffer() {
  constexpr std::size_t huge_page = std::size_t{2} << 20;
  void* const data = std::aligned_alloc(huge_page, static_cast<std::size_t>(at_once));
  if (data) (void)madvise(data, static_cast<std::size_t>(at_once), MADV_HUGEPAGE);
  return static_cast<char*>(data);
}

}  // namespace

DirectWriter::DirectWriter(std::filesystem::path const& path)
    : file_(File::open_write(path)), direct_(File::open_direct(path)) {
  refused_ = !direct_.is_open();
  for (auto& part : parts_) {
    if (!refused_) part.buffer.reset(transfer_buffer());
    refused_ = refused_ || !part.buffer;
  }
}

DirectWriter::~DirectWriter() {
  {
    std::lock_guard const lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DirectWriter::write(void const* data, std::int64_t bytes, std::int64_t offset) {
  auto const* at = static_cast<char const*>(data);
  bool const direct = !refused_ && bytes >= worth_it && offset % page == 0;
  std::int64_t const pages = direct ? bytes / page * page : 0;
  for (std::int64_t done = 0; done < pages; done += at_once)
    hand_over(at + done, std::min(at_once, pages - done), offset + done);
  std::int64_t const rest = bytes - pages;
  if (rest == 0) return;
  if (!refused_ && rest < worth_it) return keep(at + pages, rest, offset + pages);
  file_.write(at + pages, rest, offset + pages);
  file_.start_writeback(offset + pages, rest);
}

void DirectWriter::keep(char const* data, std::int64_t bytes, std::int64_t offset) {
  if (static_cast<std::int64_t>(kept_bytes_.size()) + bytes > at_once) write_kept();
  kept_.push_back({offset, bytes});
  kept_bytes_.insert(kept_bytes_.end(), data, data + bytes);
}

void DirectWriter::write_kept() {
  char const* at = kept_bytes_.data();
  for (auto const& one : kept_) {
    file_.write(at, one.bytes, one.offset);
    file_.start_writeback(one.offset, one.bytes);
    at += one.bytes;
  }
  kept_.clear();
  kept_bytes_.clear();
}

void DirectWriter::hand_over(char const* data, std::int64_t bytes, std::int64_t offset) {
  std::unique_lock lock(mutex_);
  wait_for_parts(parts_.size() - 1, lock);
  Part& part = parts_[filled_ % parts_.size()];
  lock.unlock();
  std::memcpy(part.buffer.get(), data, static_cast<std::size_t>(bytes));
  part.bytes = bytes;
  part.offset = offset;
  lock.lock();
  ++filled_;
  if (!thread_.joinable()) thread_ = std::thread([this] { write_parts(); });
  changed_.notify_all();
}

void DirectWriter::wait_for_parts(std::size_t parts, std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return error_ || filled_ - written_ <= parts; });
  if (error_) std::rethrow_exception(error_);
}

void DirectWriter::write_parts() {
  use_allowed_cores();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || filled_ > written_; });
    if (stopping_) return;
    Part const& part = parts_[written_ % parts_.size()];
    lock.unlock();
    std::exception_ptr error;
    try {
      write_part(part);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    ++written_;
    error_ = error;
    changed_.notify_all();
    if (error_) return;
  }
}

/// What the file system refuses after all goes through the cache.
void DirectWriter::write_part(Part const& part) {
  std::int64_t done = 0;
  while (!refused_ && done < part.bytes) {
    std::int64_t const put =
        direct_.write_aligned(part.buffer.get() + done, part.bytes - done, part.offset + done);
    refused_ = put % page != 0 || put == 0;
    done += put / page * page;
  }
  if (done == part.bytes) return;
  file_.write(part.buffer.get() + done, part.bytes - done, part.offset + done);
  file_.start_writeback(part.offset + done, part.bytes - done);
}

void DirectWriter::finish() {
  {
    std::unique_lock lock(mutex_);
    wait_for_parts(0, lock);
  }
  write_kept();
  direct_.close();
  file_.sync();
  file_.close();
}

}  // namespace tessera::checkpoint::detail
