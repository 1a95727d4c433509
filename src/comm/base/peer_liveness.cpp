#include "base/peer_liveness.hpp"

#include <unistd.h>

#include <utility>

#include "base/transport.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/process.hpp"

namespace tessera::comm::detail {
namespace {

using namespace std::chrono_literals;
constexpr auto check_interval = 100ms;

}  // namespace

ProcessId this_process() {
  std::int64_t const pid = getpid();
  auto const state = process_stat(pid);
  return {pid, state ? state->started : 0};
}

PeerLiveness::PeerLiveness(std::vector<Peer> peers, topology::MpiSession const* session)
    : peers_(std::move(peers)), session_(session) {
  for (auto const& p : peers_) {
    auto const state = p.on_this_node ? process_stat(p.process.pid) : std::nullopt;
    observable_.push_back(state && state->started == p.process.started && state->started != 0);
  }
}

bool PeerLiveness::alive(int rank) const {
  auto const r = static_cast<std::size_t>(rank);
  if (!observable_[r]) return true;
  auto const state = process_stat(peers_[r].process.pid);
  return state && state->started == peers_[r].process.started && !state->has_ended();
}

int PeerLiveness::first_dead() const {
  for (std::size_t r = 0; r < peers_.size(); ++r)
    if (!alive(static_cast<int>(r))) return static_cast<int>(r);
  return -1;
}

int PeerLiveness::world_rank(int rank) const {
  if (rank < 0) return -1;
  int const of_job = peers_[static_cast<std::size_t>(rank)].world_rank;
  return of_job < 0 ? rank : of_job;
}

std::string PeerLiveness::describe(int rank) const {
  auto const& p = peers_[static_cast<std::size_t>(rank)];
  return concat("rank ", world_rank(rank), " (host ", p.host, ", process ", p.process.pid, ")");
}

std::string PeerLiveness::describe_in_world(int world) const {
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r)
    if (world_rank(r) == world) return describe(r);
  return session_ ? concat("rank ", world, " (host ",
                           session_->hosts()[static_cast<std::size_t>(world)], ")")
                  : concat("rank ", world);
}

PeerWait::PeerWait(Operation const& operation, PeerLiveness const& peers,
                   Transport const& transport, Deadline deadline)
    : operation_(operation),
      peers_(peers),
      transport_(transport),
      deadline_(deadline),
      start_(std::chrono::steady_clock::now()),
      next_check_(start_ + check_interval) {}

void PeerWait::check(int missing) {
  auto const now = std::chrono::steady_clock::now();
  if (now < next_check_ && now - start_ < deadline_) return;
  next_check_ = now + check_interval;
  if (transport_.abandoned())
    lost(-1, "this rank has abandoned its operations after an error or at shutdown");
  if (int const rank = peers_.rank_of_lost_node(); rank >= 0)
    lost(rank, concat("the node of ", peers_.describe_in_world(rank), " has sent no heartbeat for ",
                      deadline_text(peers_.heartbeat_timeout()),
                      ": it crashed, was stopped or lost its network; see its log, then restart "
                      "from the last checkpoint, without this node if it happens again"));
  // the rank seen first stays the suspect: others may end because of it
  int const dead = missing >= 0                         ? (peers_.alive(missing) ? -1 : missing)
                   : dead_ >= 0 && !peers_.alive(dead_) ? dead_
                                                        : peers_.first_dead();
  if (dead >= 0 && dead == dead_)
    lost(peers_.world_rank(dead),
         concat(peers_.describe(dead),
                " has ended; see its output and the node's log for the reason, then restart "
                "from the last checkpoint"));
  dead_ = dead;
  if (now - start_ < deadline_) return;
  lost(peers_.world_rank(missing),
       concat(missing < 0 ? std::string("a rank") : peers_.describe(missing),
              " did not take part within ", deadline_text(deadline_),
              "; it hangs, or computes or writes for longer: in that case raise the "
              "communication deadline"));
}

void PeerWait::lost(int rank, std::string const& why) const {
  throw PeerLostError(rank, concat(describe(operation_), ": ", why));
}

}  // namespace tessera::comm::detail
