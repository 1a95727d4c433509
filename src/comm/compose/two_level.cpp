#include "tessera/comm/compose/two_level.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <utility>

#include "base/checked_operations.hpp"
#include "base/device_operands.hpp"
#include "base/sums.hpp"
#include "base/traffic_count.hpp"
#include "compose/link_measure.hpp"
#include "host/node_windows.hpp"
#include "tessera/comm/base/flight_recorder.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"

namespace tessera::comm {
namespace detail {
namespace {

using memory::ConstTensorView;
using memory::Event;
using memory::TensorView;

/// Bytes of the buffer of one chunk; two are in use.
constexpr std::size_t slot_bytes = std::size_t{16} << 20;

/// One worker thread runs the operations in call order. Each is a sequence of operations of the
/// node's group and of all ranks, chunk by chunk; the network moves one chunk while the node works
/// on the next.
class TwoLevelCollectives final : public Collectives {
 public:
  TwoLevelCollectives(std::unique_ptr<Collectives> world, NodeWindows windows, Levels levels,
                      std::optional<Links> links)
      : world_(std::move(world)),
        windows_(std::move(windows)),
        node_index_(windows_.node_of(world_->rank())),
        node_(world_->split({node_index_, world_->rank(),
                             static_cast<int>(windows_.members(node_index_).size()),
                             concat("node ", node_index_)})),
        leaders_(world_->split(
            {node_->rank() == 0 ? 0 : -1, world_->rank(), windows_.nodes(), "node leaders"})),
        levels_(levels),
        links_(links                         ? *links
               : levels == Levels::automatic ? links_of_job(*world_, *node_, leaders_.get())
                                             : Links{}),
        operations_(Group{world_->rank(), world_->size()}),
        worker_(memory::make_worker_queue("two-level")) {}
  /// Waits a few seconds for operations whose input is not ready, then gives them up.
  ~TwoLevelCollectives() override {
    if (!last_.wait_for(std::chrono::seconds(5))) abandoned_ = true;
    worker_.reset();
  }

  int rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }

  /// A group that spans nodes has two levels too, with the same figures.
  std::unique_ptr<Collectives> split(topology::RankGroup const& group) override {
    auto const made = std::make_shared<std::unique_ptr<Collectives>>();
    wait(enqueue(operations_.split(), {}, [=, this] {
      auto of_group = world_->split(group);
      if (!of_group) return;
      std::vector<std::int64_t> nodes(static_cast<std::size_t>(of_group->size()), node_index_);
      TensorView const view(nodes.data(), Dtype::int64, {of_group->size()});
      of_group->wait(of_group->all_gather(view, {1, 1, 0}, {}));
      std::vector<topology::NodeIndex> of_members;
      for (auto const node : nodes)
        of_members.push_back(topology::NodeIndex(static_cast<int>(node)));
      *made = make_two_level(std::move(of_group), std::move(of_members), {levels_, links_});
    }));
    return std::move(*made);
  }

  /// Memory of the node's group, which its ranks read in place.
  std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose,
                                 std::size_t bytes) override {
    struct Result {
      std::shared_ptr<void> memory;
      std::optional<OutOfMemoryError> refused;
    };
    auto const result = std::make_shared<Result>();
    wait(enqueue(operations_.allocate(bytes), {}, [=, this] {
      try {
        result->memory = node_->allocate(name, purpose, bytes);
      } catch (OutOfMemoryError const& error) {
        result->refused = error;
      }
      if (agree(*world_, !result->refused) || result->refused) return;
      result->memory.reset();
      result->refused =
          OutOfMemoryError(concat("another node cannot allocate ", bytes, " bytes for ", name,
                                  "; see the logs of its ranks"));
    }));
    if (result->refused) throw OutOfMemoryError(*result->refused);
    return result->memory;
  }

  Pending broadcast(TensorView data, int root, Event after) override {
    auto const o = operations_.broadcast(data, root);
    if (!in_two_levels(data.bytes()))
      return enqueue_flat(o, std::move(after),
                          [=, this] { return world_->broadcast(data, root, {}); });
    count_broadcast(o);
    return enqueue(o, std::move(after), [=, this] { broadcast_by_node(data, root); });
  }
  Pending all_reduce(TensorView data, ReduceOp op, Event after) override {
    auto const o = operations_.all_reduce(data, op);
    std::int64_t const each = data.numel() / size();
    if (op != ReduceOp::sum || each == 0 || !in_two_levels(data.bytes()))
      return enqueue_flat(o, std::move(after),
                          [=, this] { return world_->all_reduce(data, op, {}); });
    auto const rest = data.rows(each * size(), data.numel() - each * size());
    count_by_node(Kind::reduce_scatter, o.dtype, each);
    count_by_node(Kind::all_gather, o.dtype, each);
    count_flat({.kind = Kind::all_reduce, .dtype = o.dtype, .numel = rest.numel()});
    return enqueue(o, std::move(after), [=, this] {
      TensorView const own = data.rows(rank() * each, each);
      reduce_scatter_by_node(data, {each, each, 0}, own, memory::WriteMode::overwrite);
      all_gather_by_node(own, data, {each, each, 0});
      if (!rest.empty()) finish(world_->all_reduce(rest, op, {}));
    });
  }
  Pending reduce_scatter(TensorView in, StridedShards shards, TensorView out,
                         memory::WriteMode mode, Event after) override {
    auto const o = operations_.reduce_scatter(in, shards, out);
    if (!in_two_levels(all_bytes(shards, in.dtype())))
      return enqueue_flat(o, std::move(after),
                          [=, this] { return world_->reduce_scatter(in, shards, out, mode, {}); });
    count_by_node(o.kind, o.dtype, shards.count);
    return enqueue(o, std::move(after),
                   [=, this] { reduce_scatter_by_node(in, shards, out, mode); });
  }
  Pending all_gather(TensorView inout, StridedShards shards, Event after) override {
    auto const o = operations_.all_gather(inout, shards);
    if (!in_two_levels(all_bytes(shards, inout.dtype())))
      return enqueue_flat(o, std::move(after),
                          [=, this] { return world_->all_gather(inout, shards, {}); });
    count_by_node(o.kind, o.dtype, shards.count);
    return enqueue(o, std::move(after), [=, this] {
      all_gather_by_node(inout.rows(rank() * shards.stride + shards.offset, shards.count), inout,
                         shards);
    });
  }
  Pending all_gather(ConstTensorView in, TensorView out, StridedShards shards,
                     Event after) override {
    auto const o = operations_.all_gather(in, out, shards);
    if (!in_two_levels(all_bytes(shards, out.dtype())))
      return enqueue_flat(o, std::move(after),
                          [=, this] { return world_->all_gather(in, out, shards, {}); });
    count_by_node(o.kind, o.dtype, shards.count);
    return enqueue(o, std::move(after), [=, this] {
      all_gather_by_node(in.rows(shards.offset, shards.count), out, shards);
    });
  }

  Pending reduce(TensorView data, ReduceOp op, int root, Event after) override {
    return enqueue_flat(operations_.reduce(data, op, root), std::move(after),
                        [=, this] { return world_->reduce(data, op, root, {}); });
  }
  Pending scatter(ConstTensorView in, TensorView out, int root, Event after) override {
    return enqueue_flat(operations_.scatter(in, out, root), std::move(after),
                        [=, this] { return world_->scatter(in, out, root, {}); });
  }
  Pending gather(ConstTensorView in, TensorView out, int root, Event after) override {
    return enqueue_flat(operations_.gather(in, out, root), std::move(after),
                        [=, this] { return world_->gather(in, out, root, {}); });
  }
  Pending all_to_all(ConstTensorView in, TensorView out, Event after) override {
    return enqueue_flat(operations_.all_to_all(in, out), std::move(after),
                        [=, this] { return world_->all_to_all(in, out, {}); });
  }
  Pending all_to_all(ConstTensorView in, Parts const& send, TensorView out, Parts const& receive,
                     Event after) override {
    return enqueue_flat(
        operations_.all_to_all(in, send, out, receive), std::move(after),
        [=, this] { return world_->all_to_all(in, send, out, receive, {}); }, &send);
  }
  Pending send(ConstTensorView data, int to, Event after) override {
    return enqueue_flat(operations_.send(data, to), std::move(after),
                        [=, this] { return world_->send(data, to, {}); });
  }
  Pending receive(TensorView data, int from, Event after) override {
    return enqueue_flat(operations_.receive(data, from), std::move(after),
                        [=, this] { return world_->receive(data, from, {}); });
  }

  /// The groups below watch the deadline of what runs.
  void wait(Pending const& pending) override {
    while (!pending.event().wait_for(std::chrono::seconds(1))) {
    }
    pending.event().wait(pending.what(), std::chrono::milliseconds(0));
  }
  void barrier() override {
    wait(enqueue(operations_.barrier(), {}, [this] { world_->barrier(); }));
  }

 private:
  /// Memory of one chunk, and the last operation that uses it.
  struct Slot {
    std::shared_ptr<void> memory;
    std::size_t bytes = 0;
    Pending last;
  };

  Pending enqueue(Operation const& o, Event after, std::function<void()> body) {
    auto const input = after;
    worker_->submit([this, o, after = std::move(after), body = std::move(body)] {
      while (!after.wait_for(std::chrono::milliseconds(100)))
        if (abandoned_)
          throw PeerLostError(rank(),
                              concat(describe(o), " was abandoned before its input was ready"));
      after.wait(name_of(o.kind), std::chrono::milliseconds(0));
      CountedOperation const counted;
      body();
    });
    Pending pending{worker_->record(), concat("two-level ", describe(o))};
    last_ = pending.event();
    FlightRecorder::of_process().add(pending.what(), input, last_);
    return pending;
  }
  Pending enqueue_flat(Operation const& o, Event after, std::function<Pending()> body,
                       Parts const* send = nullptr) {
    count_flat(o, send);
    return enqueue(o, std::move(after), [this, body = std::move(body)] { finish(body()); });
  }
  void finish(Pending const& pending) { world_->wait(pending); }

  /// Bytes are counted in the call: the worker may run the operation in a later step of training.
  void count_flat(Operation const& o, Parts const* send = nullptr) const {
    count_traffic(o, send, rank(), size(),
                  [this](int peer) { return windows_.node_of(peer) == node_index_; });
  }
  void count_in_node(Operation const& o) const {
    count_traffic(o, nullptr, node_->rank(), node_->size(), [](int) { return true; });
  }
  void count_by_node(Kind kind, Dtype dtype, std::int64_t count) const;
  void count_broadcast(Operation const& o) const;

  bool in_two_levels(std::size_t bytes) const {
    if (levels_ != Levels::automatic) return levels_ == Levels::two;
    return prefers_two_levels(links_, windows_.nodes(), windows_.largest_node(), bytes);
  }
  std::size_t all_bytes(StridedShards const& shards, Dtype dtype) const {
    return static_cast<std::size_t>(shards.count * size()) * size_of(dtype);
  }

  /// Elements per shard and chunk, the same on every rank: for the node with the most windows.
  std::int64_t chunk_numel(Dtype dtype) const {
    int windows = 0;
    for (int node = 0; node < windows_.nodes(); ++node)
      windows = std::max(windows, windows_.windows(node));
    auto const parts =
        static_cast<std::size_t>(windows) + static_cast<std::size_t>(windows_.nodes());
    auto const each = slot_bytes / (parts * size_of(dtype));
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(each));
  }
  TensorView memory_of(Slot& slot, Dtype dtype, std::int64_t numel) {
    auto const bytes = static_cast<std::size_t>(numel) * size_of(dtype);
    if (slot.bytes < bytes) {
      slot.memory.reset();
      slot.memory = node_->allocate("two-level chunks", memory::Purpose::communication, bytes);
      slot.bytes = bytes;
    }
    return {slot.memory.get(), dtype, {numel}};
  }
  /// Returns the shards of @p n elements that this rank carries in its node, one per window.
  Parts carried_shards(std::int64_t n) const {
    Parts send = no_parts();
    for (int shard = 0; shard < size(); ++shard)
      if (windows_.carrier(node_index_, shard) == rank())
        set(send, shard, n, windows_.window_of(node_index_, shard) * n);
    return send;
  }
  /// This rank's shard, for its carrier in each node.
  Parts own_shard(std::int64_t n) const {
    Parts send = no_parts();
    for (int node = 0; node < windows_.nodes(); ++node)
      set(send, windows_.carrier(node, rank()), n, 0);
    return send;
  }
  Parts no_parts() const {
    std::vector<std::int64_t> const none(static_cast<std::size_t>(size()), 0);
    return {none, none};
  }
  static void set(Parts& parts, int rank, std::int64_t count, std::int64_t offset) {
    parts.counts[static_cast<std::size_t>(rank)] = count;
    parts.offsets[static_cast<std::size_t>(rank)] = offset;
  }
  static Operation of_root(Operation o, int root) {
    o.root = root;
    return o;
  }
  static TensorView from(TensorView view, std::int64_t first) {
    return view.rows(first, view.numel() - first);
  }

  void reduce_scatter_by_node(TensorView in, StridedShards shards, TensorView out,
                              memory::WriteMode mode);
  void start_sums(Slot& slot, TensorView memory, TensorView in, StridedShards shards);
  void all_gather_by_node(ConstTensorView own, TensorView out, StridedShards shards);
  void start_gather(Slot& slot, TensorView memory, ConstTensorView own, TensorView out,
                    StridedShards shards);
  void broadcast_by_node(TensorView data, int root);

  std::unique_ptr<Collectives> world_;
  NodeWindows windows_;
  int node_index_;
  std::unique_ptr<Collectives> node_, leaders_;  ///< leaders_: on the first rank of each node only
  Levels levels_;
  Links links_;
  CheckedOperations operations_;
  std::array<Slot, 2> slots_;
  std::atomic<bool> abandoned_{false};
  Event last_;
  std::unique_ptr<memory::Queue> worker_;
};

/// The node's sums of the shards that this rank carries, and their exchange. Memory: the sums of
/// this node, one per window, then those that this rank receives, one per node.
void TwoLevelCollectives::start_sums(Slot& slot, TensorView memory, TensorView in,
                                     StridedShards shards) {
  int const windows = windows_.windows(node_index_);
  std::int64_t const n = shards.count;
  Parts const send = carried_shards(n);
  Parts receive = no_parts();
  Pending last;
  for (int w = 0; w < windows; ++w)
    last = node_->reduce_scatter(from(in, windows_.start(node_index_, w) * shards.stride), shards,
                                 memory.rows(w * n, n), memory::WriteMode::overwrite, {});
  for (int node = 0; node < windows_.nodes(); ++node)
    set(receive, windows_.carrier(node, rank()), n, node * n);
  slot.last =
      world_->all_to_all(memory.rows(0, windows * n), send,
                         memory.rows(windows * n, windows_.nodes() * n), receive, last.event());
}

/// The order of the sums is that of reduce_by_node() (sums.hpp).
void TwoLevelCollectives::reduce_scatter_by_node(TensorView in, StridedShards shards,
                                                 TensorView out, memory::WriteMode mode) {
  int const windows = windows_.windows(node_index_), nodes = windows_.nodes();
  std::int64_t const chunk = chunk_numel(in.dtype());
  auto const started = [&](std::int64_t first, Slot& slot) {
    std::int64_t const n = std::min(chunk, shards.count - first);
    auto const memory = memory_of(slot, in.dtype(), (windows + nodes) * n);
    start_sums(slot, memory, in, {n, shards.stride, shards.offset + first});
    return memory.rows(windows * n, nodes * n);
  };
  if (shards.count == 0) return;
  TensorView received = started(0, slots_[0]);
  for (std::int64_t first = 0, k = 0; first < shards.count; first += chunk, ++k) {
    auto& slot = slots_[static_cast<std::size_t>(k % 2)];
    TensorView const mine = received;
    if (first + chunk < shards.count)
      received = started(first + chunk, slots_[static_cast<std::size_t>((k + 1) % 2)]);
    finish(slot.last);
    std::int64_t const n = std::min(chunk, shards.count - first);
    std::vector<std::byte const*> sums;
    for (int node = 0; node < nodes; ++node)
      sums.push_back(static_cast<std::byte const*>(element(mine, node * n)));
    reduce_arrays(ReduceOp::sum, in.dtype(), sums, n,
                  {static_cast<std::byte*>(element(out, first)), out.dtype(), mode});
  }
}

/// Each shard to its carrier on every node, and from there to the ranks of the node. Memory: the
/// shards that this rank carries, one per window.
void TwoLevelCollectives::start_gather(Slot& slot, TensorView memory, ConstTensorView own,
                                       TensorView out, StridedShards shards) {
  std::int64_t const n = shards.count;
  Parts const receive = carried_shards(n);
  auto const exchanged = world_->all_to_all(own, own_shard(n), memory, receive, {});
  // the last window may write shards that it does not carry; the windows before it overwrite them
  for (int w = windows_.windows(node_index_); w-- > 0;) {
    std::int64_t const first = windows_.start(node_index_, w) * shards.stride + shards.offset;
    slot.last = node_->all_gather(memory.rows(w * n, n), from(out, first), {n, shards.stride, 0},
                                  exchanged.event());
  }
}

void TwoLevelCollectives::all_gather_by_node(ConstTensorView own, TensorView out,
                                             StridedShards shards) {
  int const windows = windows_.windows(node_index_);
  std::int64_t const chunk = chunk_numel(out.dtype());
  std::array<bool, 2> used{};
  for (std::int64_t first = 0, k = 0; first < shards.count; first += chunk, ++k) {
    auto const index = static_cast<std::size_t>(k % 2);
    auto& slot = slots_[index];
    if (std::exchange(used[index], true)) node_->wait(slot.last);
    std::int64_t const n = std::min(chunk, shards.count - first);
    start_gather(slot, memory_of(slot, out.dtype(), windows * n), own.rows(first, n), out,
                 {n, shards.stride, shards.offset + first});
  }
  for (std::size_t index = 0; index < 2; ++index)
    if (used[index]) node_->wait(slots_[index].last);
}

void TwoLevelCollectives::broadcast_by_node(TensorView data, int root) {
  int const root_node = windows_.node_of(root);
  auto const& members = windows_.members(root_node);
  bool const is_here = node_index_ == root_node;
  if (is_here && members[0] != root) {
    auto const place = std::find(members.begin(), members.end(), root) - members.begin();
    node_->wait(node_->broadcast(data, static_cast<int>(place), {}));
  }
  if (leaders_) leaders_->wait(leaders_->broadcast(data, root_node, {}));
  if (!is_here || members[0] == root) node_->wait(node_->broadcast(data, 0, {}));
}

/// A reduce-scatter or all-gather of @p count elements per rank, in any number of chunks.
void TwoLevelCollectives::count_by_node(Kind kind, Dtype dtype, std::int64_t count) const {
  Parts const send = kind == Kind::reduce_scatter ? carried_shards(count) : own_shard(count);
  count_flat({.kind = Kind::all_to_all_v, .dtype = dtype}, &send);
  count_in_node({.kind = kind, .dtype = dtype, .numel = windows_.windows(node_index_) * count});
}

void TwoLevelCollectives::count_broadcast(Operation const& o) const {
  int const root_node = windows_.node_of(o.root);
  if (rank() == o.root && node_->rank() != 0) count_in_node(of_root(o, node_->rank()));
  if (leaders_)
    count_traffic(of_root(o, root_node), nullptr, leaders_->rank(), leaders_->size(),
                  [](int) { return false; });
  bool const is_from_root = node_index_ == root_node && windows_.members(root_node)[0] != o.root;
  if (!is_from_root) count_in_node(of_root(o, 0));
}

}  // namespace
}  // namespace detail

/// Both ways move the same shards. Flat, each of a node's ranks sends them to every rank of the
/// other nodes; in two levels a node sends each once, after a sum or before a copy inside.
bool prefers_two_levels(Links const& links, int nodes, int ranks_per_node, std::size_t bytes) {
  double const ranks = nodes * ranks_per_node, n = static_cast<double>(bytes);
  double const across = n * (nodes - 1) / nodes / links.network.bytes_per_second;
  double const flat = (ranks - 1) * links.network.latency_seconds + ranks_per_node * across;
  double const two = (nodes - 1) * links.network.latency_seconds +
                     2.0 * nodes * links.node.latency_seconds + across +
                     n / links.node.bytes_per_second;
  return two < flat;
}

std::unique_ptr<Collectives> make_two_level(std::unique_ptr<Collectives> world,
                                            std::vector<topology::NodeIndex> nodes,
                                            TwoLevelOptions options) {
  detail::NodeWindows windows(nodes);
  bool const has_levels = windows.nodes() > 1 && windows.largest_node() > 1;
  if (!has_levels || options.levels == Levels::flat) return world;
  return std::make_unique<detail::TwoLevelCollectives>(std::move(world), std::move(windows),
                                                       options.levels, options.links);
}

}  // namespace tessera::comm
