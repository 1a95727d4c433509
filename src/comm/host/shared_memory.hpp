#pragma once
/// Memory that the processes of a node share: anonymous files (memfd_create). They have no name,
/// count against the memory limit of the job and not against the size of /dev/shm, and are freed
/// when the last process that maps them ends, even by a signal.
///
/// Private memory of another process is read and written by one copy (process_vm_readv,
/// process_vm_writev).

#include <cstddef>
#include <cstdint>

namespace tessera::comm::detail {

enum class Access { read, read_write };

/// Where another process finds an anonymous file while its creator keeps it open:
/// /proc/<pid>/fd/<fd>.
struct SharedFileAddress {
  std::int64_t pid = 0;
  std::int64_t fd = -1;
  std::uint64_t inode = 0;  ///< verifies that it is the same file
  std::uint64_t bytes = 0;
};

/// Owner of an open anonymous file. Move-only; not open when the system call failed.
class SharedFile {
 public:
  SharedFile() = default;
  static SharedFile create(std::size_t bytes);
  static SharedFile open(SharedFileAddress const& address);
  SharedFile(SharedFile&& other) noexcept;
  SharedFile& operator=(SharedFile&& other) noexcept;
  ~SharedFile();

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  SharedFileAddress address() const;

 private:
  explicit SharedFile(int fd) : fd_(fd) {}
  int fd_ = -1;
};

/// Owner of a mapping of a complete file; aligned to huge pages with MADV_HUGEPAGE when large. May
/// outlive the SharedFile.
class Mapping {
 public:
  Mapping() = default;
  Mapping(SharedFile const& file, std::size_t bytes, Access access);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const { return data_; }  ///< null when mmap failed
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// An address in another process.
struct PeerAddress {
  std::int64_t pid = 0;
  std::uint64_t address = 0;  ///< 0: none
};
PeerAddress address_in_this_process(void const* data);

/// @return 0, or errno: EPERM where the system forbids it, ESRCH when the process has ended
int read_peer_memory(PeerAddress from, std::byte* to, std::size_t bytes);
/// Copies into a peer's memory, with the results of read_peer_memory().
int write_peer_memory(PeerAddress to, std::byte const* from, std::size_t bytes);

}  // namespace tessera::comm::detail
