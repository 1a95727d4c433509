#pragma once
/// Reads and writes private memory of another process of the node by one copy (process_vm_readv,
/// process_vm_writev).

#include <cstddef>
#include <cstdint>

namespace tessera::comm::detail {

/// An address in another process.
struct PeerAddress {
  std::int64_t pid = 0;
  std::uint64_t at = 0;  ///< 0: none
};
PeerAddress address_in_this_process(void const* data);

/// @return 0, or errno: EPERM where the system forbids it, ESRCH when the process has ended
int read_peer_memory(PeerAddress from, std::byte* to, std::size_t bytes);
/// The same in the other direction.
int write_peer_memory(PeerAddress to, std::byte const* from, std::size_t bytes);

}  // namespace tessera::comm::detail
