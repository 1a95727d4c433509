#include "tessera/memory/swap_file.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "detail/disk_ring.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/planning.hpp"

namespace tessera::memory {
namespace {

/// A stripe is a mapping of its own, and the system limits their number (vm.max_map_count).
constexpr std::size_t smallest_stripe = std::size_t{4} << 20, most_stripes = 8192;

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
  struct statfs room {};
  if (::statfs(directory.c_str(), &room) != 0) return directory.string();
  return concat(directory.string(), " (",
                human_bytes(static_cast<std::int64_t>(room.f_bavail) * room.f_bsize), " free)");
}

bool is_aligned(std::size_t offset, void const* data, std::size_t bytes) {
  return offset % swap_alignment == 0 && bytes % swap_alignment == 0 &&
         reinterpret_cast<std::uintptr_t>(data) % swap_alignment == 0;
}

/// The mappings of this process. Where a drive cannot give or take a page, the system sends SIGBUS;
/// the handler may only read what is here.
class Mappings {
 public:
  static Mappings& of_process() {
    static Mappings mappings;
    return mappings;
  }
  /// A process has fewer swap files than places; a further one has no message of its own.
  void add(void const* data, std::size_t bytes, std::string const& text) {
    for (auto& place : places_) {
      if (place.taken.exchange(true)) continue;
      place.text[text.copy(place.text.data(), place.text.size() - 1)] = '\0';
      place.bytes = bytes;
      place.begin = static_cast<std::byte const*>(data);
      return;
    }
  }
  void remove(void const* data) noexcept {
    for (auto& place : places_)
      if (data != nullptr && place.begin == data) {
        place.begin = nullptr;
        place.taken = false;
      }
  }

 private:
  struct Place {
    std::atomic<bool> taken{false};
    std::atomic<std::byte const*> begin{nullptr};
    std::size_t bytes = 0;
    std::array<char, 512> text{};
  };
  Mappings() {
    struct sigaction action {};
    action.sa_sigaction = &end_process;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGBUS, &action, &previous_);
  }
  static void end_process(int, siginfo_t* info, void*) {
    auto& self = of_process();
    auto const* const address = static_cast<std::byte const*>(info->si_addr);
    for (auto const& place : self.places_) {
      std::byte const* const begin = place.begin;
      if (begin == nullptr || address < begin || address >= begin + place.bytes) continue;
      [[maybe_unused]] auto const written =
          ::write(STDERR_FILENO, place.text.data(), std::strlen(place.text.data()));
      ::_exit(static_cast<int>(ExitCode::io));
    }
    ::sigaction(SIGBUS, &self.previous_, nullptr);  // the access is repeated under it
  }

  std::array<Place, 64> places_;
  struct sigaction previous_ {};
};

}  // namespace

bool is_in_memory(std::filesystem::path const& directory) {
  struct statfs system {};
  return ::statfs(directory.c_str(), &system) == 0 &&
         (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
}

SwapFile::SwapFile(std::string name, SwapDirectories const& directories, std::size_t bytes)
    : name_(std::move(name)), bytes_(round_up(bytes, swap_alignment)) {
  TESSERA_EXPECT(!directories.empty());
  stripe_ = directories.size() == 1
                ? std::max(bytes_, swap_alignment)
                : round_up(std::max(smallest_stripe, bytes_ / most_stripes), swap_alignment);
  if (BufferPlanning::active()) {  // addresses that nothing may access
    data_ = ::mmap(nullptr, std::max(bytes_, swap_alignment), PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return;
  }
  try {
    open(directories);
  } catch (...) {
    close();
    throw;
  }
  if (bytes_ == 0) return;
  int reason = reserve();
  if (reason == 0) reason = map();
  if (reason != 0) {
    close();
    throw IoError(concat("cannot reserve ", human_bytes(static_cast<std::int64_t>(bytes_)), " for ",
                         name_, " in ", drive_text(), ": ", std::strerror(reason),
                         "; free space there, or give another nvme_path or more ranks"));
  }
  for (auto& drive : drives_)
    drive.direct =
        ::open(concat("/proc/self/fd/", drive.file).c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
}

SwapFile::~SwapFile() { close(); }

void SwapFile::open(SwapDirectories const& directories) {
  for (auto const& directory : directories) {
    int const file = open_nameless(directory);
    if (file < 0)
      throw IoError(concat(path_error("cannot make a swap file in", directory, errno),
                           "; nvme_path names an existing directory on a local drive"));
    drives_.push_back({directory, file});
  }
}

/// Reserves equal sizes on all drives. @return the system's reason, or 0
int SwapFile::reserve() const {
  std::size_t const rounds = round_up(round_up(bytes_, stripe_) / stripe_, drives_.size());
  std::size_t const each = drives_.size() == 1 ? bytes_ : rounds / drives_.size() * stripe_;
  for (auto const& drive : drives_)
    if (int const reason = ::posix_fallocate(drive.file, 0, static_cast<off_t>(each)); reason != 0)
      return reason;
  return 0;
}

/// @return the system's reason, or 0
int SwapFile::map() {
  data_ = ::mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data_ == MAP_FAILED) data_ = nullptr;
  if (data_ == nullptr) return errno;
  for (std::size_t at = 0; at < bytes_; at += stripe_) {
    std::size_t const stripe = at / stripe_;
    void* const part = ::mmap(static_cast<std::byte*>(data_) + at, std::min(stripe_, bytes_ - at),
                              PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, drive_of(at).file,
                              static_cast<off_t>(stripe / drives_.size() * stripe_));
    if (part == MAP_FAILED) return errno;
  }
  Mappings::of_process().add(
      data_, bytes_,
      concat("error: cannot read or write ", name_, " in the swap file in ", drive_text(),
             " (SIGBUS); check the drive (dmesg) or give another nvme_path; checkpoints do not "
             "depend on swap files: the same command continues from the last one\n"));
  return 0;
}

void SwapFile::close() noexcept {
  Mappings::of_process().remove(data_);
  if (data_ != nullptr) ::munmap(data_, std::max(bytes_, swap_alignment));
  data_ = nullptr;
  for (auto& drive : drives_) {
    if (drive.direct >= 0) ::close(drive.direct);
    ::close(drive.file);
    drive.direct = drive.file = -1;
  }
}

bool SwapFile::is_direct() const {
  return std::all_of(drives_.begin(), drives_.end(),
                     [](Drive const& drive) { return drive.direct >= 0; });
}

SwapFile::Drive const& SwapFile::drive_of(std::size_t offset) const {
  return drives_[offset / stripe_ % drives_.size()];
}

std::string SwapFile::drive_text() const {
  std::string out;
  for (auto const& drive : drives_)
    out += concat(out.empty() ? "" : " and ", free_text(drive.directory));
  return out;
}

SwapFile::Extent SwapFile::first_extent(std::size_t offset, std::size_t bytes) const {
  auto const& drive = drive_of(offset);
  std::size_t const inside = offset % stripe_;
  return {is_direct() ? drive.direct : drive.file,
          static_cast<off_t>(offset / stripe_ / drives_.size() * stripe_ + inside),
          std::min(bytes, stripe_ - inside)};
}

void SwapFile::flush() const {
  if (bytes_ == 0 || drives_.empty()) return;
  if (::msync(data_, bytes_, MS_SYNC) != 0) fail(Access::write, 0, bytes_, errno);
  ::madvise(data_, bytes_, MADV_DONTNEED);
  for (auto const& drive : drives_) {
    if (::fdatasync(drive.file) != 0) fail(Access::write, 0, bytes_, errno);
    ::posix_fadvise(drive.file, 0, 0, POSIX_FADV_DONTNEED);
  }
}

void SwapFile::transfer(Access access, std::size_t offset, std::byte* memory,
                        std::size_t bytes) const {
  TESSERA_EXPECT(is_aligned(offset, memory, bytes) && offset + bytes <= bytes_);
  detail::DiskProgress progress(bytes);
  while (progress.remaining() > 0) {
    auto const part = first_extent(offset + progress.completed(), progress.remaining());
    std::byte* const at = memory + progress.completed();
    ssize_t const n = access == Access::read ? ::pread(part.file, at, part.bytes, part.offset)
                                             : ::pwrite(part.file, at, part.bytes, part.offset);
    if (int const reason = progress.advance(n < 0 ? -errno : n); reason != 0)
      fail(access, offset, bytes, reason);
  }
}

void SwapFile::fail(Access access, std::size_t offset, std::size_t bytes, int reason) const {
  auto const label = labels_.upper_bound(offset);
  std::string const values =
      label == labels_.begin() ? "" : concat(" of ", std::prev(label)->second);
  throw IoError(concat("cannot ", access == Access::read ? "read " : "write ",
                       human_bytes(static_cast<std::int64_t>(bytes)), " of ", name_, values,
                       " at byte ", offset, " of its swap file in ",
                       drive_of(offset).directory.string(), ": ", std::strerror(reason),
                       "; check the drive (dmesg) or give another nvme_path; checkpoints do not "
                       "depend on swap files: the same command continues from the last one"));
}

}  // namespace tessera::memory
