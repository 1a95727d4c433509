#pragma once
/// Nonblocking MPI calls, polled with a deadline, so that a dead peer becomes an error; and the
/// operations that every transport between processes leaves to MPI.

#include <functional>

#include "base/transport.hpp"
#include "host/mpi_comm.hpp"

namespace tessera::comm::detail {

/// Bytes per MPI call, well below 2 GiB: counts and internal sizes of some libraries are 32-bit.
constexpr std::size_t message_limit = std::size_t{512} << 20;
inline int as_int(std::size_t bytes) { return static_cast<int>(bytes); }

class MpiCalls {
 public:
  /// All outlive this object.
  MpiCalls(MpiComm& comm, PeerLiveness const& peers, Transport const& transport, Deadline deadline)
      : comm_(comm), peers_(peers), transport_(transport), deadline_(deadline) {}

  /// Starts a call under the lock and waits for it.
  /// @param peer the rank of the group that it waits for, -1: all
  void run(Operation const& operation, char const* call,
           std::function<int(MPI_Request*)> const& start, int peer = -1);

  void send(Operation const& operation, std::byte const* data);
  void receive(Operation const& operation, std::byte* data);
  void all_to_all(Operation const& operation, std::byte const* in, Parts const& send,
                  std::byte* out, Parts const& receive);

 private:
  void finish(Operation const& operation, MPI_Request request, int peer);

  MpiComm& comm_;
  PeerLiveness const& peers_;
  Transport const& transport_;
  Deadline deadline_;
};

}  // namespace tessera::comm::detail
