#pragma once
/// Collective operations over the ranks of a group: a few virtual functions on untyped tensors, and
/// typed helpers above them. Semantics of each operation, and buffer ownership:
/// docs/explanation/collectives.md.
/// Implementations: comm/host_collectives.hpp, comm/device_collectives.hpp, comm/recording.hpp.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/core/dtype.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/queue.hpp"
#include "tessera/memory/tensor.hpp"
#include "tessera/topology/rank_groups.hpp"

namespace tessera {
class ExactSum;
}

namespace tessera::comm {

/// How a reduction combines the values of the ranks.
enum class ReduceOp { sum, max, min };

/// An operation in flight, like an MPI_Request. Until it has completed, its inputs must not be
/// written, and its outputs must be neither read nor written.
class [[nodiscard]] Pending {
 public:
  Pending() = default;
  Pending(memory::Event event, std::string what)
      : event_(std::move(event)), what_(std::move(what)) {}
  /// Work enqueued on @p queue from now on starts after the operation. Does not block the host,
  /// except on an inline queue.
  void order_before(memory::Queue& queue) const { queue.wait(event_); }
  memory::Event const& event() const { return event_; }
  /// The operation in words, for messages.
  std::string const& what() const { return what_; }

 private:
  memory::Event event_;
  std::string what_;
};

/// Strided shards: the layout of the input of a reduce-scatter and of the output of an all-gather.
/// Rank r owns the `count` elements from element r * stride + offset on. A part of every rank's
/// region of a unit's flat buffer is such a layout, so that a large unit is moved by several
/// operations without packing. With stride == count and offset == 0 it is the layout of MPI and
/// NCCL.
struct StridedShards {
  std::int64_t count = 0;   ///< elements per rank
  std::int64_t stride = 0;  ///< elements from the start of one rank's region to that of the next
  std::int64_t offset = 0;  ///< elements from the start of a region to the shard
};

/// What one rank sends to, or receives from, each rank of a group (MPI_Alltoallv): part q has
/// counts[q] elements from element offsets[q] on. Parts that are sent may overlap.
struct Parts {
  std::vector<std::int64_t> counts, offsets;
};

/// The collective operations of the ranks of a group. Every rank of the group calls them in the
/// same order.
class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The group of the ranks with this rank's color, as MPI_Comm_split; null for a negative color.
  /// It has its own order of operations and outlives this object. Collective; runs after everything
  /// called before and blocks.
  virtual std::unique_ptr<Collectives> split(topology::RankGroup const& group) = 0;

  /// Memory that the implementation moves without an extra copy: shared memory within a node, or
  /// memory registered with NCCL. Zeroed, 64-byte aligned, counted by the memory tracker; freed
  /// with the returned owner. Collective: every rank calls it in the same order with the same
  /// bytes.
  /// @throws OutOfMemoryError on every rank when one rank has too little memory
  virtual std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose,
                                         std::size_t bytes) = 0;

  /// Every operation returns immediately and starts after the event @p after. All ranks call the
  /// same operations in the same order with equal sizes. Reductions run in the order of the calls,
  /// and so do operations that only move data. Between the two kinds only events order: NCCL may
  /// have a stream for each kind; the host has one worker thread for both.
  virtual Pending broadcast(memory::TensorView data, int root, memory::Event after) = 0;
  virtual Pending all_reduce(memory::TensorView data, ReduceOp op, memory::Event after) = 0;
  /// The result is on the root; the other ranks' data stays unchanged.
  virtual Pending reduce(memory::TensorView data, ReduceOp op, int root, memory::Event after) = 0;
  /// out[i] (+)= sum over ranks q of in_q[rank * stride + offset + i]. The host adds in fp32, as
  /// a binary tree over the ranks, and rounds once. @p out may have another dtype than @p in and
  /// may be inside this rank's region of @p in.
  virtual Pending reduce_scatter(memory::TensorView in, StridedShards shards,
                                 memory::TensorView out, memory::WriteMode mode,
                                 memory::Event after) = 0;
  /// Gathers in place: inout[q * stride + offset + i] = inout_q[q * stride + offset + i] for every
  /// rank q.
  virtual Pending all_gather(memory::TensorView inout, StridedShards shards,
                             memory::Event after) = 0;
  /// Gathers from a separate input: out[q * stride + offset + i] = in_q[offset + i].
  virtual Pending all_gather(memory::ConstTensorView in, memory::TensorView out,
                             StridedShards shards, memory::Event after) = 0;
  /// out_q[i] = in_root[q * out.numel() + i]; @p in is used on the root only.
  virtual Pending scatter(memory::ConstTensorView in, memory::TensorView out, int root,
                          memory::Event after) = 0;
  /// out_root[q * in.numel() + i] = in_q[i]; @p out is used on the root only.
  virtual Pending gather(memory::ConstTensorView in, memory::TensorView out, int root,
                         memory::Event after) = 0;
  /// out[q * n + i] = in_q[rank * n + i] for every rank q and i < n = in.numel() / size().
  virtual Pending all_to_all(memory::ConstTensorView in, memory::TensorView out,
                             memory::Event after) = 0;
  /// Parts of different sizes. receive.counts[q] equals send.counts[rank] of rank q.
  virtual Pending all_to_all(memory::ConstTensorView in, Parts const& send, memory::TensorView out,
                             Parts const& receive, memory::Event after) = 0;
  /// Sends to another rank of the group. Only the two ranks make the calls, each pair in the same
  /// order. A send completes when the peer has received it, and later operations wait for it: two
  /// ranks that both send first wait for each other, so an exchange is an all_to_all.
  virtual Pending send(memory::ConstTensorView data, int to, memory::Event after) = 0;
  virtual Pending receive(memory::TensorView data, int from, memory::Event after) = 0;

  /// Blocks the host until the operation has completed.
  /// @throws PeerLostError after the deadline, naming the operation, its bytes and, where known,
  /// the missing rank
  virtual void wait(Pending const& pending) = 0;
  virtual void barrier() = 0;
};

/// Time limit of an operation whose input is ready.
using Deadline = std::chrono::milliseconds;

/// The logical AND of @p ok over all ranks, like MPIX_Comm_agree: all ranks learn of an error of
/// one. Blocking.
bool agree(Collectives& comm, bool ok);
/// Reductions of a few host values. Blocking.
double all_reduce_value(Collectives& comm, double value, ReduceOp op);
std::int64_t all_reduce_value(Collectives& comm, std::int64_t value, ReduceOp op);
void all_reduce_values(Collectives& comm, std::vector<double>& values, ReduceOp op);
/// An exact sum over all ranks, the same for any distribution of the values. Blocking.
void all_reduce_sum(Collectives& comm, ExactSum& sum);
/// The root's bytes, of any length, on every rank.
std::string broadcast_bytes(Collectives& comm, std::string bytes, int root);
/// Runs @p work on rank 0 and returns its result on every rank, so that one rank reads a file for
/// all. When it throws an Error, every rank throws that error.
std::string broadcast_from_root(Collectives& comm, std::function<std::string()> const& work);
/// Runs @p work on all ranks, or on those whose @p takes_part is true. When it fails on any rank,
/// every rank throws the error of the lowest failed rank.
void run_on_ranks(Collectives& comm, std::function<void()> const& work);
void run_on_ranks(Collectives& comm, bool takes_part, std::function<void()> const& work);
/// Every rank's bytes on the root; empty on the other ranks.
std::vector<std::string> gather_bytes(Collectives& comm, std::string const& bytes, int root);

/// While it lives, this thread waits for each operation that it starts before it does anything
/// else. On the host such an operation runs in the calling thread where no other is in flight:
/// handing it to the communication thread and back costs two context switches, more than a small
/// operation takes. Errors and the order of operations are the same.
class SynchronousCalls {
 public:
  SynchronousCalls();
  ~SynchronousCalls();
  SynchronousCalls(SynchronousCalls const&) = delete;
  SynchronousCalls& operator=(SynchronousCalls const&) = delete;

  /// Whether this thread is in such a scope.
  static bool active();

 private:
  bool before_;
};

/// The rank has an error of its own, which it is about to report, or it shuts down.
class PeerStoppedError : public PeerLostError {
 public:
  using PeerLostError::PeerLostError;
};

}  // namespace tessera::comm
