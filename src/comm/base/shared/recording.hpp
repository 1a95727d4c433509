#pragma once
/// Collectives that record every operation (its name, elements and bytes), and collectives that
/// move nothing, to find out what memory the ranks of a group need.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/comm/base/collectives.hpp"

namespace tessera::comm {

namespace detail {
struct Operation;
}

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
 public:
  explicit RecordingCollectives(std::unique_ptr<Collectives> inner);

  std::vector<CollectiveRecord> records() const;
  std::size_t bytes_sent() const;  ///< sum over the records
  /// Returns the bytes that this rank has sent in the group with this name.
  std::size_t bytes_sent(std::string const& group) const;
  void clear();

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::unique_ptr<Collectives> split(topology::RankGroup const& group) override;
  std::shared_ptr<void> allocate(std::string const& name, memory::Purpose purpose,
                                 std::size_t bytes) override;
  Pending send(memory::ConstTensorView data, int to, memory::Event after) override;
  Pending receive(memory::TensorView data, int from, memory::Event after) override;
  Pending broadcast(memory::TensorView data, int root, memory::Event after) override;
  Pending gather(memory::ConstTensorView in, memory::TensorView out, int root,
                 memory::Event after) override;
  Pending all_reduce(memory::TensorView data, ReduceOp op, memory::Event after) override;
  Pending reduce(memory::TensorView data, ReduceOp op, int root, memory::Event after) override;
  Pending all_to_all(memory::ConstTensorView in, Parts const& send, memory::TensorView out,
                     Parts const& receive, memory::Event after) override;
  Pending all_to_all(memory::ConstTensorView in, memory::TensorView out,
                     memory::Event after) override;
  Pending reduce_scatter(memory::TensorView in, StridedShards shards, memory::TensorView out,
                         memory::WriteMode mode, memory::Event after) override;
  Pending all_gather(memory::TensorView inout, StridedShards shards, memory::Event after) override;
  Pending all_gather(memory::ConstTensorView in, memory::TensorView out, StridedShards shards,
                     memory::Event after) override;
  Pending scatter(memory::ConstTensorView in, memory::TensorView out, int root,
                  memory::Event after) override;
  void wait(Pending const& pending) override { inner_->wait(pending); }
  void barrier() override { inner_->barrier(); }

 private:
  /// @param numel of all ranks
  void add(detail::Operation const& operation, std::int64_t numel);
  void add(CollectiveRecord record);

  struct Log {
    std::mutex mutex;
    std::vector<CollectiveRecord> records;
  };
  RecordingCollectives(std::unique_ptr<Collectives> inner, std::string group,
                       std::shared_ptr<Log> log);

  std::unique_ptr<Collectives> inner_;
  std::string group_;
  std::shared_ptr<Log> log_;
};

std::unique_ptr<RecordingCollectives> make_recording(std::unique_ptr<Collectives> inner);

/// Rank 0 of @p ranks. Every operation has completed when it is called and leaves its output as it
/// is; a memory::WorkTrace records it. allocate() makes a buffer in @p space. Used in the scope of
/// a memory::BufferPlanning.
std::unique_ptr<Collectives> make_planning_collectives(int ranks, memory::MemorySpace space);

}  // namespace tessera::comm
