#include "tessera/memory/swap_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/text.hpp"

namespace tessera::memory {
namespace {

constexpr std::chrono::milliseconds transfer_deadline = std::chrono::minutes(10);

/// A file without a name; file systems without O_TMPFILE give one whose name is removed.
int open_nameless(std::filesystem::path const& directory) {
  int const file = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return file;
  std::string name = (directory / ".tessera-swap-XXXXXX").string();
  int const named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

std::string free_text(std::filesystem::path const& directory) {
  struct statvfs room {};
  if (::statvfs(directory.c_str(), &room) != 0) return "";
  return concat(" (", human_bytes(static_cast<std::int64_t>(room.f_bavail * room.f_frsize)),
                " free)");
}

bool is_aligned(std::size_t offset, void const* data, std::size_t bytes) {
  return offset % swap_alignment == 0 && bytes % swap_alignment == 0 &&
         reinterpret_cast<std::uintptr_t>(data) % swap_alignment == 0;
}

/// Calls @p transfer(done bytes) until @p bytes are done. @return the system's reason, or 0
template <class Transfer>
int repeat(std::size_t bytes, Transfer const& transfer) {
  for (std::size_t done = 0; done < bytes;) {
    ssize_t const n = transfer(done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EIO;
    done += static_cast<std::size_t>(n);
  }
  return 0;
}

}  // namespace

SwapFile::SwapFile(std::string name, std::filesystem::path const& directory, std::size_t bytes)
    : name_(std::move(name)),
      directory_(directory),
      bytes_((bytes + swap_alignment - 1) / swap_alignment * swap_alignment) {
  file_ = open_nameless(directory);
  if (file_ < 0) throw IoError(path_error("cannot make a swap file in", directory, errno));
  if (bytes_ == 0) return;
  auto const size = static_cast<off_t>(bytes_);
  int reason = ::posix_fallocate(file_, 0, size);
  if (reason == 0) {
    data_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (data_ == MAP_FAILED) reason = errno;
  }
  if (reason != 0) {
    ::close(file_);
    throw IoError(concat("cannot reserve ", human_bytes(static_cast<std::int64_t>(bytes_)), " for ",
                         name_, " in ", directory.string(), free_text(directory), ": ",
                         std::strerror(reason),
                         "; free space there, or give another nvme_path or more ranks"));
  }
  direct_ = ::open(concat("/proc/self/fd/", file_).c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
}

SwapFile::~SwapFile() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
  if (direct_ >= 0) ::close(direct_);
  ::close(file_);
}

void SwapFile::flush() const {
  if (bytes_ == 0) return;
  if (::msync(data_, bytes_, MS_SYNC) != 0 || ::fdatasync(file_) != 0)
    fail("write back", 0, bytes_, errno);
  ::madvise(data_, bytes_, MADV_DONTNEED);
  ::posix_fadvise(file_, 0, 0, POSIX_FADV_DONTNEED);
}

void SwapFile::read(std::size_t offset, void* to, std::size_t bytes) const {
  TESSERA_EXPECT(is_aligned(offset, to, bytes) && offset + bytes <= bytes_);
  int const file = is_direct() ? direct_ : file_;
  int const reason = repeat(bytes, [&](std::size_t done) {
    return ::pread(file, static_cast<std::byte*>(to) + done, bytes - done,
                   static_cast<off_t>(offset + done));
  });
  if (reason != 0) fail("read", offset, bytes, reason);
}

void SwapFile::write(std::size_t offset, void const* from, std::size_t bytes) const {
  TESSERA_EXPECT(is_aligned(offset, from, bytes) && offset + bytes <= bytes_);
  int const file = is_direct() ? direct_ : file_;
  int const reason = repeat(bytes, [&](std::size_t done) {
    return ::pwrite(file, static_cast<std::byte const*>(from) + done, bytes - done,
                    static_cast<off_t>(offset + done));
  });
  if (reason != 0) fail("write", offset, bytes, reason);
}

void SwapFile::fail(char const* what, std::size_t offset, std::size_t bytes, int reason) const {
  throw IoError(concat("cannot ", what, " ", human_bytes(static_cast<std::int64_t>(bytes)), " of ",
                       name_, " at byte ", offset, " of its swap file in ", directory_.string(),
                       ": ", std::strerror(reason),
                       "; check the drive (dmesg) or give another nvme_path; checkpoints do not "
                       "depend on swap files: the same command continues from the last one"));
}

SwapTransfers::SwapTransfers(SwapOptions const& options) : options_(options) {
  TESSERA_EXPECT(options.queue_depth > 0 && options.block_size > 0 &&
                 options.block_size % swap_alignment == 0);
  for (int i = 0; i < options.queue_depth; ++i) {
    readers_.push_back(make_worker_queue(concat("swap read ", i)));
    writers_.push_back(make_worker_queue(concat("swap write ", i)));
  }
}

SwapTransfers::Pending SwapTransfers::start(
    Workers& workers, std::size_t bytes, Pending const& after,
    std::function<void(std::size_t begin, std::size_t bytes)> const& block) {
  Pending pending;
  std::size_t const blocks = (bytes + options_.block_size - 1) / options_.block_size;
  for (std::size_t worker = 0; worker < std::min(blocks, workers.size()); ++worker) {
    auto& queue = *workers[worker];
    order_before(queue, after);
    for (std::size_t i = worker; i < blocks; i += workers.size())
      queue.submit([block, begin = i * options_.block_size, bytes, size = options_.block_size] {
        block(begin, std::min(size, bytes - begin));
      });
    pending.push_back(queue.record());
  }
  return pending;
}

SwapTransfers::Pending SwapTransfers::read(SwapFile const& file, std::size_t offset, void* to,
                                           std::size_t bytes, Pending const& after) {
  return start(readers_, bytes, after, [&file, offset, to](std::size_t begin, std::size_t count) {
    file.read(offset + begin, static_cast<std::byte*>(to) + begin, count);
  });
}

SwapTransfers::Pending SwapTransfers::write(SwapFile const& file, std::size_t offset,
                                            void const* from, std::size_t bytes,
                                            Pending const& after) {
  return start(writers_, bytes, after, [&file, offset, from](std::size_t begin, std::size_t count) {
    file.write(offset + begin, static_cast<std::byte const*>(from) + begin, count);
  });
}

void SwapTransfers::wait() const {
  for (auto const* workers : {&readers_, &writers_})
    for (auto const& queue : *workers)
      queue->record().wait("transfers of swap files", transfer_deadline);
}

void order_before(Queue& queue, SwapTransfers::Pending const& pending) {
  for (auto const& event : pending) queue.wait(event);
}

}  // namespace tessera::memory
