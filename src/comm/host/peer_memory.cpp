#include "host/peer_memory.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tessera::comm::detail {

namespace {

/// @param call process_vm_readv or process_vm_writev
template <class Call>
int transfer(Call call, PeerAddress there, std::byte* here, std::size_t bytes) {
  constexpr std::size_t most = std::size_t{1} << 30;  // a call moves less than 2 GiB
  for (std::size_t done = 0; done < bytes;) {
    std::size_t const count = std::min(bytes - done, most);
    iovec const local{here + done, count};
    iovec const remote{reinterpret_cast<void*>(there.at + done), count};
    ssize_t const n = call(static_cast<pid_t>(there.pid), &local, 1, &remote, 1, 0);
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
