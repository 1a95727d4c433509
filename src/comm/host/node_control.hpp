#pragma once
/// The control segment of a node: the operation that each rank posts, a barrier between phases, and
/// one staging buffer per rank.
///
/// All ranks map one anonymous file: header | slot of rank 0 .. N-1 | staging of rank 0 .. N-1, two
/// halves each. An operation is a sequence of phases, the same on every rank. A phase ends when all
/// ranks have arrived at it; then every rank can read what the others wrote before they arrived.
/// Operation k is posted at index k % 2, which is written again for operation k + 2; no rank
/// reaches that before all have read k. The staging halves alternate in the same way.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/operation.hpp"
#include "base/peer_liveness.hpp"
#include "base/transport.hpp"
#include "host/shared_memory.hpp"

namespace tessera::comm::detail {

/// What a rank posts at the start of an operation.
struct PostedOperation {
  Operation operation;
  std::int64_t segment = -1;       ///< shared allocation that holds its input; -1: private memory
  std::uint64_t offset_bytes = 0;  ///< from the start of that allocation
  PeerAddress memory;              ///< its input in private memory, where peers can read it
  SharedFileAddress file;          ///< allocate: the rank's new file
  std::int32_t status = 0;         ///< allocate: its outcome on the rank
};

/// How a thread waits that has nothing else to do (SynchronousCalls); the communication thread
/// always sleeps soon, because threads of its rank compute. All sleep in the end.
enum class Waiting {
  poll,   ///< keeps its core for the time that a sleep and a wake-up take: each rank has a core
  yield,  ///< gives the core to others between polls: ranks share cores
};

class NodeControl {
 public:
  static constexpr std::size_t half_bytes = std::size_t{1} << 20;
  static std::size_t file_bytes(int ranks);

  /// @param mapping file_bytes(group.size) zeroed bytes
  /// @param peers, transport outlive this object
  NodeControl(Mapping mapping, Group group, PeerLiveness const& peers, Transport const& transport,
              Deadline deadline, Waiting waiting);
  ~NodeControl();

  /// Posts this rank's operation and ends a phase, after which posted() returns that of every rank.
  /// @throws InternalError on every rank when the ranks' operations differ
  void post(PostedOperation const& own);
  PostedOperation const& posted(int rank) const;

  /// A barrier: ends a phase. @throws PeerLostError naming the missing rank
  void synchronize(Operation const& operation);

  /// Staging buffers; every rank uses the same half.
  std::byte* staging(Rank rank, int half) const;
  int next_half() { return half_ = 1 - half_; }

  /// Any thread may call it: this rank takes part in no further phase. Ranks that wait for it fail
  /// immediately.
  void leave();

 private:
  struct Header;
  struct Slot;
  Header& header() const;
  Slot& slot(int rank) const;
  bool complete() const;
  void arrive();
  void sleep() const;
  bool completes_soon() const;
  int missing() const;
  void check_missing(Operation const& operation, PeerWait& wait);
  void check_same(Operation const& own) const;

  Mapping mapping_;
  Group group_;
  PeerLiveness const& peers_;
  Transport const& transport_;
  Deadline deadline_;
  Waiting waiting_;
  std::uint64_t phase_ = 0;       ///< phases that this rank has arrived at
  std::uint64_t operations_ = 0;  ///< operations posted
  int half_ = 0;
};

}  // namespace tessera::comm::detail
