#pragma once
/// Collective operations over the ranks of a group: few virtual functions on bytes, thin typed
/// helpers above. A record of what is moved: comm/recording.hpp. Semantics of each operation, and
/// who may touch which buffer when: docs/explanation/collectives.md.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/core/dtype.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/queue.hpp"
#include "tessera/memory/tensor.hpp"
#include "tessera/topology/mpi_session.hpp"

namespace tessera::comm {

enum class ReduceOp { sum, max, min };

/// An operation under way. Its buffers belong to the operation until it is done: no writes to
/// inputs, no access to outputs.
class [[nodiscard]] Pending {
 public:
  Pending() = default;
  Pending(memory::Event event, std::string what)
      : event_(std::move(event)), what_(std::move(what)) {}
  /// Lets a queue's later work start after the operation; does not block the host (except on an
  /// inline queue).
  void order_before(memory::Queue& queue) const { queue.wait(event_); }
  memory::Event const& event() const { return event_; }
  std::string const& what() const { return what_; }

 private:
  memory::Event event_;
  std::string what_;
};

/// Strided input of a reduce-scatter and output of an all-gather: for each rank r the `count`
/// elements from element r * stride + offset of the whole buffer. A piece of a unit's flat buffer
/// is such a block, so that a large unit can be moved in several operations without packing.
struct Blocks {
  std::int64_t count = 0;   ///< elements a rank
  std::int64_t stride = 0;  ///< elements from one rank's region to the next
  std::int64_t offset = 0;  ///< elements from the start of a region
};

class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Memory that the implementation can move fastest (a shared segment inside a node). Zeroed,
  /// 64-byte aligned, counted in the memory tracker; lives as long as the returned owner.
  /// Collective: every rank calls it in the same order with the same bytes.
  /// @throws OutOfMemoryError on every rank when one cannot have it
  virtual std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose,
                                         std::size_t bytes) = 0;

  /// Operations are queued on this object's own lanes: those that reduce run in the order in which
  /// they were called, and so do those that move data; between the two kinds order is by events
  /// alone (NCCL has a lane for each, the host one for both). They start after
  /// @p after. All ranks call the same operations in the same order with equal sizes.
  virtual Pending broadcast(memory::TensorView data, int root, memory::Event after) = 0;
  virtual Pending all_reduce(memory::TensorView data, ReduceOp op, memory::Event after) = 0;
  virtual Pending reduce(memory::TensorView data, ReduceOp op, int root, memory::Event after) = 0;
  /// out[i] = sum over ranks q of in_q[rank * stride + offset + i], or out[i] += that when @p
  /// accumulate. Sums are formed in fp32 in rank order and rounded once. @p out may have another
  /// dtype than @p in and may lie inside @p in (own region).
  virtual Pending reduce_scatter(memory::TensorView in, Blocks blocks, memory::TensorView out,
                                 bool accumulate, memory::Event after) = 0;
  /// inout[q * stride + offset + i] = inout_q[q * stride + offset + i] for every rank q: in place,
  /// each rank provides its region.
  virtual Pending all_gather(memory::TensorView inout, Blocks blocks, memory::Event after) = 0;
  /// As above from a separate input: out[q * stride + offset + i] = in_q[offset + i].
  virtual Pending all_gather(memory::ConstTensorView in, memory::TensorView out, Blocks blocks,
                             memory::Event after) = 0;
  /// Root's data[q * numel/size ...] goes to rank q's out; gather is the reverse. Equal counts.
  virtual Pending scatter(memory::ConstTensorView in, memory::TensorView out, int root,
                          memory::Event after) = 0;
  virtual Pending gather(memory::ConstTensorView in, memory::TensorView out, int root,
                         memory::Event after) = 0;

  /// Blocks the host until done. @throws PeerLostError naming operation, bytes, and the rank that
  /// is missing, after the deadline.
  virtual void wait(Pending const& pending) = 0;
  virtual void barrier() = 0;
};

using Deadline = std::chrono::milliseconds;

/// One rank, no communication: copies.
std::unique_ptr<Collectives> make_loopback();
/// MPI: operations run on a worker thread of their own, inside a node through shared memory
/// (docs/explanation/collectives.md), else by MPI calls.
enum class NodeTransport { automatic, mpi_only };
std::unique_ptr<Collectives> make_mpi(topology::MpiSession const& session, Deadline deadline,
                                      NodeTransport transport = NodeTransport::automatic);

/// True when every rank's @p ok is true: all ranks act on an error together. Host values, blocking.
bool agree(Collectives& comm, bool ok);
/// Reductions of a few host values, blocking.
double all_reduce_value(Collectives& comm, double value, ReduceOp op);
std::int64_t all_reduce_value(Collectives& comm, std::int64_t value, ReduceOp op);
void all_reduce_values(Collectives& comm, std::vector<double>& values, ReduceOp op);
/// Root's bytes to all, any length (configuration, plans).
std::string broadcast_bytes(Collectives& comm, std::string bytes, int root);
/// What @p work returns on rank 0, on every rank; an Error that it throws there is thrown by all.
/// One look at a file system for all ranks.
std::string broadcast_from_root(Collectives& comm, std::function<std::string()> const& work);
/// Runs @p work where @p takes_part; when it fails anywhere, every rank throws the error of the
/// lowest failed rank.
void run_on_ranks(Collectives& comm, bool takes_part, std::function<void()> const& work);
/// Every rank's bytes on root (empty elsewhere).
std::vector<std::string> gather_bytes(Collectives& comm, std::string const& bytes, int root);

}  // namespace tessera::comm
