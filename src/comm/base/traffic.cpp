#include "tessera/comm/base/traffic.hpp"

#include <atomic>

#include "base/traffic_count.hpp"

namespace tessera::comm {
namespace {

struct Counters {
  std::atomic<std::uint64_t> intra_node{0}, inter_node{0}, nccl{0};
};
Counters& counters() {
  static Counters instance;
  return instance;
}

/// Whether this thread runs an operation that has been counted.
thread_local bool is_counted = false;

}  // namespace

Traffic operator-(Traffic const& now, Traffic const& before) {
  return {now.intra_node - before.intra_node, now.inter_node - before.inter_node,
          now.nccl - before.nccl};
}

double bus_factor(std::string const& operation, double ranks) {
  if (operation == "all_reduce") return 2.0 * (ranks - 1.0) / ranks;
  if (operation == "all_gather" || operation == "reduce_scatter" || operation == "all_to_all")
    return (ranks - 1.0) / ranks;
  return 1.0;
}

Traffic traffic_of_process() {
  auto const& c = counters();
  return {c.intra_node, c.inter_node, c.nccl};
}

namespace detail {

std::size_t bytes_to_peer(Operation const& o, int rank, int size, int peer, Parts const* send) {
  switch (o.kind) {
    case Kind::all_reduce: {  // as a reduce-scatter and an all-gather of slices
      auto const elements =
          slice_of(o.numel, size, Rank(peer)).count + slice_of(o.numel, size, Rank(rank)).count;
      return static_cast<std::size_t>(elements) * o.element_bytes();
    }
    case Kind::reduce_scatter:
    case Kind::all_gather:
    case Kind::all_to_all:
      return o.bytes();
    case Kind::all_to_all_v:
      return static_cast<std::size_t>(send->counts[static_cast<std::size_t>(peer)]) *
             o.element_bytes();
    case Kind::broadcast:
    case Kind::scatter:
      return rank == o.root ? o.bytes() : 0;
    case Kind::reduce:
    case Kind::gather:
    case Kind::send:
      return peer == o.root ? o.bytes() : 0;
    default:
      return 0;
  }
}

void count_traffic(Operation const& o, Parts const* send, int rank, int size,
                   std::function<bool(int)> const& is_on_node) {
  if (is_counted) return;
  std::uint64_t inside = 0, across = 0;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    (is_on_node(peer) ? inside : across) += bytes_to_peer(o, rank, size, peer, send);
  }
  counters().intra_node += inside;
  counters().inter_node += across;
}

void count_nccl_traffic(Operation const& o, Parts const* send, int rank, int size) {
  std::uint64_t sum = 0;
  for (int peer = 0; peer < size; ++peer)
    if (peer != rank) sum += bytes_to_peer(o, rank, size, peer, send);
  counters().nccl += sum;
}

CountedOperation::CountedOperation() { is_counted = true; }
CountedOperation::~CountedOperation() { is_counted = false; }

}  // namespace detail
}  // namespace tessera::comm
