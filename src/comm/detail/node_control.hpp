#pragma once
/// The control segment of a node's ranks: what each announces, a barrier between phases, and a
/// staging area a rank.
///
/// One anonymous file, mapped by all: header | slot of rank 0 .. N-1 | staging of rank 0 .. N-1,
/// two halves each. An operation is a fixed sequence of phases, the same on every rank. A phase
/// ends when all ranks have arrived at it; what a rank wrote before it arrived can be read by all
/// after it. What is announced for operation k lies in place k % 2 and is written again for k + 2,
/// which no rank reaches before all have read k; staging halves alternate in the same way.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "detail/operation.hpp"
#include "detail/peer_liveness.hpp"
#include "detail/shared_memory.hpp"
#include "detail/transport.hpp"

namespace tessera::comm::detail {

/// What a rank announces at the start of an operation.
struct Announcement {
  Operation operation;
  std::int64_t segment = -1;  ///< shared allocation that its source lies in; -1: ordinary memory
  std::uint64_t offset = 0;   ///< bytes from the start of that allocation
  SharedFileAddress file;     ///< allocate: the rank's new file
  std::int32_t status = 0;    ///< allocate: how it went
};

class NodeControl {
 public:
  static constexpr std::size_t half_bytes = std::size_t{1} << 20;
  static std::size_t file_bytes(int ranks);

  /// @param mapping of file_bytes(peers) zeroed bytes; @param peers and @param transport outlive
  /// the control
  NodeControl(Mapping mapping, int rank, int ranks, PeerLiveness const& peers,
              Transport const& transport, Deadline deadline);
  ~NodeControl();

  /// Announces and ends a phase; then every rank's announcement of this operation can be read.
  /// @throws InternalError on every rank when the ranks' operations differ
  void announce(Announcement const& own);
  Announcement const& announced(int rank) const;

  /// Ends a phase. @throws PeerLostError naming the rank that is missing
  void synchronise(Operation const& operation);

  /// The halves to use now: the same index on every rank.
  std::byte* staging(int rank, int half) const;
  int next_half() { return half_ = 1 - half_; }

  /// From any thread: this rank takes part in no further phase; those who wait for it learn so at
  /// once.
  void leave();

 private:
  struct Header;
  struct Slot;
  Header& header() const;
  Slot& slot(int rank) const;
  bool complete() const;
  void arrive();
  void sleep() const;
  int missing() const;
  void check_missing(Operation const& operation, Wait& wait);
  void check_same(Operation const& own) const;

  Mapping mapping_;
  int rank_, ranks_;
  PeerLiveness const& peers_;
  Transport const& transport_;
  Deadline deadline_;
  std::uint64_t phase_ = 0;       ///< phases that this rank has arrived at
  std::uint64_t operations_ = 0;  ///< announcements made
  int half_ = 0;
};

}  // namespace tessera::comm::detail
