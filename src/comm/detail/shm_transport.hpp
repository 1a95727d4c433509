#pragma once
/// Collectives of ranks that are all on one node, through shared memory.
///
/// Peers read data in memory of allocate() in place (direct); other data is copied through staging
/// buffers in chunks. All ranks use the same path: direct when every rank whose data is read has it
/// in shared memory.

#include <memory>
#include <vector>

#include "detail/mpi_comm.hpp"
#include "detail/node_control.hpp"
#include "detail/shared_allocator.hpp"
#include "detail/transport.hpp"

namespace tessera::comm::detail {

class ShmTransport final : public Transport {
 public:
  /// Null on every rank when the ranks are not all on one node or cannot map each other's memory.
  /// Collective.
  static std::unique_ptr<ShmTransport> try_make(topology::MpiSession const& session,
                                                Deadline deadline);

  int rank() const override { return group_.rank; }
  int size() const override { return group_.size; }
  char const* name() const override { return "shared memory"; }

  std::shared_ptr<void> allocate(Operation const& operation, std::string const& name,
                                 memory::Purpose purpose) override {
    return allocator_.allocate(operation, name, purpose);
  }
  void broadcast(Operation const& operation, std::byte* data) override;
  void all_reduce(Operation const& operation, std::byte* data) override;
  void reduce(Operation const& operation, std::byte* data) override;
  void reduce_scatter(Operation const& operation, std::byte const* in, Target const& out) override;
  void all_gather(Operation const& operation, std::byte const* in, std::byte* out) override;
  void scatter(Operation const& operation, std::byte const* in, std::byte* out) override;
  void gather(Operation const& operation, std::byte const* in, std::byte* out) override;
  void barrier(Operation const& operation) override;
  void abandon() override;

 private:
  /// What ranks read from each other in one operation.
  struct Source {
    std::byte const* data = nullptr;  ///< first element of shard 0; null when no rank reads it
    std::int64_t shards = 1;          ///< per rank
    std::int64_t stride = 0;          ///< elements from shard to shard
    int only = -1;                    ///< the one rank whose data is read, -1: all
  };
  /// Elements [first, first + count) of every shard of every rank, readable in this phase.
  struct Chunk {
    std::int64_t first = 0, count = 0;
    std::vector<std::byte const*> base;  ///< by rank: element `first` of shard 0
    std::size_t stride_bytes = 0;        ///< from shard to shard
    std::byte const* at(int rank, std::int64_t shard = 0) const {
      return base[static_cast<std::size_t>(rank)] + static_cast<std::size_t>(shard) * stride_bytes;
    }
  };

  ShmTransport(PeerLiveness peers, Mapping mapping, Group group, Deadline deadline);

  /// Makes the sources of all ranks readable, chunk by chunk, and calls @p consume(chunk) for each.
  template <class Consume>
  void exchange(Operation const& operation, Source const& source, Consume&& consume);
  /// True when every rank can read the source in place.
  bool post_source(Operation const& operation, Source const& source);
  Chunk direct_chunk(Operation const& operation) const;
  Chunk stage(Operation const& operation, Source const& source, std::int64_t first,
              std::int64_t count);
  bool provides(Source const& source, int rank) const {
    return source.only < 0 || source.only == rank;
  }

  void reduce_direct(Operation const& operation, std::byte* data);
  void reduce_staged(Operation const& operation, std::byte* data);
  void reduce_small(Operation const& operation, std::byte* data);
  void reduce_slice(Operation const& operation, Chunk const& chunk, Slice slice,
                    std::byte* to) const;
  void copy_slices(Operation const& operation, Chunk const& chunk, std::byte* to) const;

  PeerLiveness peers_;
  Group group_;
  NodeControl control_;
  SharedAllocator allocator_;
};

}  // namespace tessera::comm::detail
