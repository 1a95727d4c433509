#pragma once
/// Which peers still live, and how long one may wait for them.

#include <chrono>
#include <string>
#include <vector>

#include "detail/operation.hpp"
#include "tessera/comm/collectives.hpp"

namespace tessera::comm::detail {

class Transport;

/// A process as seen from another one: a process id is used again after a death, the pair with its
/// start time is not.
struct ProcessId {
  std::int64_t pid = 0;
  std::int64_t started = 0;  ///< clock ticks since boot, field 22 of /proc/<pid>/stat
  bool operator==(ProcessId const&) const = default;
};
ProcessId this_process();

/// The ranks of a group: where they run, and for those of this node whether they live.
class PeerLiveness {
 public:
  struct Peer {
    std::string host;
    ProcessId process;
    bool on_this_node = false;
  };
  /// @param session  whose watch over nodes is asked too; null: none
  explicit PeerLiveness(std::vector<Peer> peers, topology::MpiSession const* session = nullptr);

  /// False when the process of this rank has ended (a zombie has); true when that cannot be seen
  /// from here.
  bool alive(int rank) const;
  /// Lowest rank that is not alive, else -1.
  int first_dead() const;
  /// First rank of a node that has fallen silent, else -1; how long that takes.
  int on_lost_node() const { return session_ ? session_->rank_of_lost_node() : -1; }
  std::chrono::milliseconds patience() const { return session_->node_patience(); }
  /// "rank 3 (host n017, process 4711)"
  std::string describe(int rank) const;

 private:
  std::vector<Peer> peers_;
  topology::MpiSession const* session_;
  std::vector<char>
      observable_;  ///< its start time in this process's view of /proc is the one it reported
};

/// One wait of an operation. check() is called between looks at the thing waited for.
class Wait {
 public:
  Wait(Operation const& operation, PeerLiveness const& peers, Transport const& transport,
       Deadline deadline);

  /// @param missing lowest rank that has not arrived, -1 when unknown
  /// @throws PeerLostError when that rank (any rank when unknown) has died, after the deadline, or
  /// when the transport gave up
  void check(int missing);
  std::chrono::steady_clock::duration elapsed() const {
    return std::chrono::steady_clock::now() - start_;
  }

 private:
  [[noreturn]] void lost(int rank, std::string const& why) const;

  Operation const& operation_;
  PeerLiveness const& peers_;
  Transport const& transport_;
  Deadline deadline_;
  std::chrono::steady_clock::time_point start_, next_look_;
  int dead_ = -1;  ///< seen dead at the last look: it may have arrived before, so that the next
                   ///< look decides
};

}  // namespace tessera::comm::detail
