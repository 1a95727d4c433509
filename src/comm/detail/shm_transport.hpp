#pragma once
/// Collectives of ranks that are all on one node, through shared memory.
///
/// Data in memory from allocate() is read by the peers where it lies (direct); other data goes
/// through staging halves in pieces. All ranks choose the same way: direct when every rank whose
/// data is read has it in shared memory.

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

  int rank() const override { return rank_; }
  int size() const override { return size_; }
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
    std::byte const* data =
        nullptr;              ///< first element of block 0; null on a rank whose data nobody reads
    std::int64_t blocks = 1;  ///< as many per rank
    std::int64_t stride = 0;  ///< elements from block to block
    int only = -1;            ///< the one rank whose data is read, -1: all
  };
  /// Elements [first, first + count) of every block of every rank, where they can be read now.
  struct Piece {
    std::int64_t first = 0, count = 0;
    std::vector<std::byte const*> base;  ///< of each rank: element `first` of block 0
    std::size_t block_bytes = 0;         ///< from block to block
    std::byte const* at(int rank, std::int64_t block = 0) const {
      return base[static_cast<std::size_t>(rank)] + static_cast<std::size_t>(block) * block_bytes;
    }
  };

  ShmTransport(PeerLiveness peers, Mapping mapping, int rank, int size, Deadline deadline);

  /// Makes the source of all ranks readable piece by piece and calls @p consume for each.
  template <class Consume>
  void exchange(Operation const& operation, Source const& source, Consume&& consume);
  bool announce_source(Operation const& operation, Source const& source);
  Piece direct_piece(Operation const& operation) const;
  Piece stage(Operation const& operation, Source const& source, std::int64_t first,
              std::int64_t count);
  bool provides(Source const& source, int rank) const {
    return source.only < 0 || source.only == rank;
  }

  void reduce_direct(Operation const& operation, std::byte* data);
  void reduce_staged(Operation const& operation, std::byte* data);
  void reduce_small(Operation const& operation, std::byte* data);
  void reduce_slice(Operation const& operation, Piece const& piece, Slice slice,
                    std::byte* to) const;
  void copy_slices(Operation const& operation, Piece const& piece, std::byte* to) const;

  PeerLiveness peers_;
  int rank_, size_;
  NodeControl control_;
  SharedAllocator allocator_;
};

}  // namespace tessera::comm::detail
