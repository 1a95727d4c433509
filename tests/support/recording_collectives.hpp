#pragma once
/// Collectives that record every operation (its name, elements and bytes), to compare the traffic
/// of an algorithm with theory.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/base/collectives.hpp"

namespace tessera::comm {

/// One operation. Bytes are counted by a fixed convention, independent of the implementation, so
/// that they can be compared with theory. With N ranks, n elements of data, c = shards.count,
/// element size s and this rank r:
///   reduce_scatter   c s to each peer                            sum (N-1) c s
///   all_gather       c s to each peer                            sum (N-1) c s
///   all_reduce       as a reduce-scatter and an all-gather of n elements cut into N slices:
///                    (|slice q| + |slice r|) s to peer q          sum 2 (N-1)/N n s when N divides
///                    n
///   reduce, gather   this rank's input to the root                n s; the root sends nothing
///   broadcast        the root sends n s to each peer              (N-1) n s; others send nothing
///   scatter          the root sends n/N s to each peer            (N-1)/N n s; others send nothing
///   all_to_all       part q to peer q                             the parts of all peers
///   send             n s to the peer                              n s; a receive sends nothing
struct CollectiveRecord {
  std::string group;                       ///< name of the group; empty: all ranks of the job
  std::string operation;                   ///< "reduce_scatter", ...
  std::int64_t numel = 0;                  ///< elements of all ranks: N c or n
  Dtype dtype = Dtype::fp32;               ///< on the wire
  std::size_t bytes_sent = 0;              ///< by this rank to all peers
  std::vector<std::size_t> bytes_to_peer;  ///< [size()]; 0 for this rank
  bool operator==(CollectiveRecord const&) const = default;
};

/// Forwards to another implementation and records each operation in the order of the calls.
/// Allocations, splits and barriers are forwarded without a record. The operations of groups that
/// it is split into are in the same list.
class RecordingCollectives final : public Collectives {
  static std::int64_t nothing(int) { return 0; }
  static auto to_each(std::int64_t count) {
    return [count](int) { return count; };
  }
  auto from_root(int root, std::int64_t count) const { return to_each(rank() == root ? count : 0); }

 public:
  explicit RecordingCollectives(std::unique_ptr<Collectives> inner)
      : RecordingCollectives(std::move(inner), {}, std::make_shared<Log>()) {}

  std::vector<CollectiveRecord> records() const {
    std::lock_guard lock(log_->mutex);
    return log_->records;
  }
  /// Returns the sum over the records.
  std::size_t bytes_sent() const {
    std::size_t sum = 0;
    for (auto const& r : records()) sum += r.bytes_sent;
    return sum;
  }
  /// Returns the bytes that this rank has sent in the group with this name.
  std::size_t bytes_sent(std::string const& group) const {
    std::size_t sum = 0;
    for (auto const& r : records()) sum += r.group == group ? r.bytes_sent : 0;
    return sum;
  }
  void clear() {
    std::lock_guard lock(log_->mutex);
    log_->records.clear();
  }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<Collectives> split(topology::RankGroup const& group) override {
    auto of_group = inner_->split(group);
    if (!of_group) return nullptr;
    return std::unique_ptr<Collectives>(
        new RecordingCollectives(std::move(of_group), group.name, log_));
  }
  std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose,
                                 std::size_t bytes) override {
    return inner_->allocate(name, purpose, bytes);
  }
  Pending send(memory::ConstTensorView data, int to, memory::Event after) override {
    add("send", data.numel(), data.dtype(), [&](int q) { return q == to ? data.numel() : 0; });
    return inner_->send(data, to, std::move(after));
  }
  Pending receive(memory::TensorView data, int from, memory::Event after) override {
    add("receive", data.numel(), data.dtype(), nothing);
    return inner_->receive(data, from, std::move(after));
  }
  Pending broadcast(memory::TensorView data, int root, memory::Event after) override {
    add("broadcast", data.numel(), data.dtype(), from_root(root, data.numel()));
    return inner_->broadcast(data, root, std::move(after));
  }
  Pending scatter(memory::ConstTensorView in, memory::TensorView out, int root,
                  memory::Event after) override {
    add("scatter", out.numel() * size(), out.dtype(), from_root(root, out.numel()));
    return inner_->scatter(in, out, root, std::move(after));
  }
  Pending gather(memory::ConstTensorView in, memory::TensorView out, int root,
                 memory::Event after) override {
    add("gather", in.numel() * size(), in.dtype(),
        [&](int q) { return q == root ? in.numel() : 0; });
    return inner_->gather(in, out, root, std::move(after));
  }
  Pending reduce(memory::TensorView data, ReduceOp op, int root, memory::Event after) override {
    add("reduce", data.numel(), data.dtype(), [&](int q) { return q == root ? data.numel() : 0; });
    return inner_->reduce(data, op, root, std::move(after));
  }
  Pending all_reduce(memory::TensorView data, ReduceOp op, memory::Event after) override {
    auto const slice = [&](int q) {
      return data.numel() / size() + (q < data.numel() % size() ? 1 : 0);
    };
    add("all_reduce", data.numel(), data.dtype(), [&](int q) { return slice(q) + slice(rank()); });
    return inner_->all_reduce(data, op, std::move(after));
  }
  Pending all_to_all(memory::ConstTensorView in, memory::TensorView out,
                     memory::Event after) override {
    add("all_to_all", in.numel(), in.dtype(), to_each(in.numel() / size()));
    return inner_->all_to_all(in, out, std::move(after));
  }
  Pending all_to_all(memory::ConstTensorView in, Parts const& send, memory::TensorView out,
                     Parts const& receive, memory::Event after) override {
    std::int64_t numel = 0;
    for (auto const count : send.counts) numel += count;
    add("all_to_all", numel, in.dtype(),
        [&](int q) { return send.counts[static_cast<std::size_t>(q)]; });
    return inner_->all_to_all(in, send, out, receive, std::move(after));
  }
  Pending reduce_scatter(memory::TensorView in, StridedShards shards, memory::TensorView out,
                         memory::WriteMode mode, memory::Event after) override {
    add("reduce_scatter", shards.count * size(), in.dtype(), to_each(shards.count));
    return inner_->reduce_scatter(in, shards, out, mode, std::move(after));
  }
  Pending all_gather(memory::TensorView inout, StridedShards shards, memory::Event after) override {
    add("all_gather", shards.count * size(), inout.dtype(), to_each(shards.count));
    return inner_->all_gather(inout, shards, std::move(after));
  }
  Pending all_gather(memory::ConstTensorView in, memory::TensorView out, StridedShards shards,
                     memory::Event after) override {
    add("all_gather", shards.count * size(), out.dtype(), to_each(shards.count));
    return inner_->all_gather(in, out, shards, std::move(after));
  }
  void wait(Pending const& pending) override { inner_->wait(pending); }
  void barrier() override { inner_->barrier(); }

 private:
  struct Log {
    std::mutex mutex;
    std::vector<CollectiveRecord> records;
  };
  RecordingCollectives(std::unique_ptr<Collectives> inner, std::string group,
                       std::shared_ptr<Log> log)
      : inner_(std::move(inner)), group_(std::move(group)), log_(std::move(log)) {}

  /// @param numel of all ranks @param sent elements that this rank sends to a peer
  template <class Sent>
  void add(char const* operation, std::int64_t numel, Dtype dtype, Sent const& sent) {
    CollectiveRecord r{group_, operation, numel, dtype, 0, {}};
    for (int q = 0; q < size(); ++q)
      r.bytes_to_peer.push_back(q == rank() ? 0
                                            : static_cast<std::size_t>(sent(q)) * size_of(dtype));
    for (auto const bytes : r.bytes_to_peer) r.bytes_sent += bytes;
    std::lock_guard lock(log_->mutex);
    log_->records.push_back(std::move(r));
  }

  std::unique_ptr<Collectives> inner_;
  std::string group_;
  std::shared_ptr<Log> log_;
};

inline std::unique_ptr<RecordingCollectives> make_recording(std::unique_ptr<Collectives> inner) {
  return std::make_unique<RecordingCollectives>(std::move(inner));
}

}  // namespace tessera::comm
