#include "host/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::comm::detail {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;

/// Beyond RLIMIT_FSIZE ftruncate raises SIGXFSZ.
bool within_file_limit(std::size_t bytes) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
         bytes <= limit.rlim_cur;
}

/// Reserves an address range of this size at a multiple of the huge page size, so that huge pages
/// of the file can be mapped. Null when mmap fails.
void* reserve_aligned(std::size_t bytes) {
  void* const raw = mmap(nullptr, bytes + huge_page, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto const base = reinterpret_cast<std::uintptr_t>(raw);
  auto const aligned = round_up(base, huge_page);
  if (aligned > base) munmap(raw, aligned - base);
  auto const end = base + bytes + huge_page, used_end = aligned + bytes;
  auto const page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  auto const tail = round_up(used_end, page);
  if (end > tail) munmap(reinterpret_cast<void*>(tail), end - tail);
  return reinterpret_cast<void*>(aligned);
}

}  // namespace

SharedFile SharedFile::create(std::size_t bytes) {
  if (!within_file_limit(bytes)) return {};
  SharedFile file(memfd_create("tessera", MFD_CLOEXEC));
  if (file.is_open() && ftruncate(file.fd_, static_cast<off_t>(bytes)) != 0) return {};
  return file;
}

SharedFile SharedFile::open(SharedFileAddress const& address) {
  SharedFile file(
      ::open(concat("/proc/", address.pid, "/fd/", address.fd).c_str(), O_RDWR | O_CLOEXEC));
  if (!file.is_open()) return {};
  auto const found = file.address();
  return found.inode == address.inode && found.bytes == address.bytes ? std::move(file)
                                                                      : SharedFile();
}

SharedFile::SharedFile(SharedFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
SharedFile& SharedFile::operator=(SharedFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
SharedFile::~SharedFile() {
  if (fd_ >= 0) close(fd_);
}

SharedFileAddress SharedFile::address() const {
  struct stat info {};
  if (fd_ < 0 || fstat(fd_, &info) != 0) return {};
  return {getpid(), fd_, info.st_ino, static_cast<std::uint64_t>(info.st_size)};
}

Mapping::Mapping(SharedFile const& file, std::size_t bytes, Access access) {
  int const protection = access == Access::read ? PROT_READ : PROT_READ | PROT_WRITE;
  void* const at = bytes >= huge_page ? reserve_aligned(bytes) : nullptr;
  void* const mapped =
      mmap(at, bytes, protection, MAP_SHARED | MAP_NORESERVE | (at ? MAP_FIXED : 0), file.fd(), 0);
  if (mapped == MAP_FAILED) {
    if (at) munmap(at, bytes);
    return;
  }
  if (at) madvise(mapped, bytes, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(mapped);
  bytes_ = bytes;
}
Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
Mapping::~Mapping() {
  if (data_) munmap(data_, bytes_);
}

namespace {

/// @param call process_vm_readv or process_vm_writev
template <class Call>
int transfer(Call call, PeerAddress remote_address, std::byte* here, std::size_t bytes) {
  constexpr std::size_t most = std::size_t{1} << 30;  // a call moves less than 2 GiB
  for (std::size_t done = 0; done < bytes;) {
    std::size_t const count = std::min(bytes - done, most);
    iovec const local{here + done, count};
    iovec const remote{reinterpret_cast<void*>(remote_address.address + done), count};
    ssize_t const n = call(static_cast<pid_t>(remote_address.pid), &local, 1, &remote, 1, 0);
    if (n < 0) return errno;
    if (n == 0) return EFAULT;
    done += static_cast<std::size_t>(n);
  }
  return 0;
}

}  // namespace

PeerAddress address_in_this_process(void const* data) {
  return {getpid(), reinterpret_cast<std::uintptr_t>(data)};
}

int read_peer_memory(PeerAddress from, std::byte* to, std::size_t bytes) {
  return transfer(process_vm_readv, from, to, bytes);
}

int write_peer_memory(PeerAddress to, std::byte const* from, std::size_t bytes) {
  return transfer(process_vm_writev, to, const_cast<std::byte*>(from), bytes);
}

}  // namespace tessera::comm::detail
