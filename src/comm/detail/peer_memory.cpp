#include "detail/peer_memory.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tessera::comm::detail {

PeerAddress address_in_this_process(void const* data) {
  return {getpid(), reinterpret_cast<std::uintptr_t>(data)};
}

int read_peer_memory(PeerAddress from, std::byte* to, std::size_t bytes) {
  constexpr std::size_t most = std::size_t{1} << 30;  // a call reads less than 2 GiB
  for (std::size_t done = 0; done < bytes;) {
    std::size_t const count = std::min(bytes - done, most);
    iovec const local{to + done, count};
    iovec const remote{reinterpret_cast<void*>(from.at + done), count};
    ssize_t const n = process_vm_readv(static_cast<pid_t>(from.pid), &local, 1, &remote, 1, 0);
    if (n < 0) return errno;
    if (n == 0) return EFAULT;
    done += static_cast<std::size_t>(n);
  }
  return 0;
}

}  // namespace tessera::comm::detail
