#pragma once
/// Collectives of ranks that are all on one node, through shared memory.
///
/// Peers read data in memory of allocate() in place, and private memory by process_vm_readv where
/// the system permits it (direct); else data is copied through staging buffers in chunks. All ranks
/// use the same path: direct when the data of every rank that is read can be read. From which sizes
/// on is in path_limits.hpp.

#include <memory>
#include <optional>
#include <vector>

#include "base/path_limits.hpp"
#include "host/node_control.hpp"
#include "host/process_transport.hpp"
#include "host/shared_heap.hpp"

namespace tessera::comm::detail {

class ShmTransport final : public ProcessTransport {
 public:
  /// Null on every rank when the ranks are not all on one node or cannot map each other's memory;
  /// then @p comm and @p members are unchanged. Collective.
  static std::unique_ptr<ShmTransport> try_make(std::unique_ptr<MpiComm>& comm,
                                                GroupMembers& members,
                                                topology::MpiSession const& session,
                                                Deadline deadline, PathLimits const& limits);

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
  void all_to_all(Operation const& operation, std::byte const* in, std::byte* out) override;
  using ProcessTransport::all_to_all;
  void barrier(Operation const& operation) override;
  void abandon() override;

 private:
  /// Which memory of a peer the reader of a chunk can take.
  enum class Reach { shared, any };
  /// What ranks read from each other in one operation.
  struct Source {
    std::byte const* data = nullptr;  ///< first element of shard 0; null when no rank reads it
    std::int64_t shards = 1;          ///< per rank
    std::int64_t stride = 0;          ///< elements from shard to shard
    int only = -1;                    ///< the one rank whose data is read, -1: all
    Reach reach = Reach::shared;      ///< any: the chunks are read by copy() and reduce() only
  };
  /// Some of a chunk's bytes.
  struct Part {
    std::byte const* data = nullptr;
    int private_to = -1;  ///< the rank in whose memory the address is; -1: readable here
  };
  /// Elements [first, first + count) of every shard of every rank, readable in this phase.
  struct Chunk {
    std::int64_t first = 0, count = 0;
    std::vector<std::byte const*> base;  ///< by rank: element `first` of shard 0
    std::size_t stride_bytes = 0;        ///< from shard to shard
    std::vector<char> is_private;        ///< by rank; empty: none
    std::byte const* shard_of(int rank, std::int64_t shard = 0) const {
      return base[static_cast<std::size_t>(rank)] + static_cast<std::size_t>(shard) * stride_bytes;
    }
    Part part(int rank, std::int64_t shard = 0, std::size_t offset_bytes = 0) const {
      bool const apart = !is_private.empty() && is_private[static_cast<std::size_t>(rank)];
      return {shard_of(rank, shard) + offset_bytes, apart ? rank : -1};
    }
  };

  ShmTransport(std::unique_ptr<MpiComm> comm, GroupMembers members, Mapping mapping,
               topology::MpiSession const& session, Deadline deadline, PathLimits const& limits);

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

  /// Whether every rank can read and write private memory of every other. Collective when first
  /// called.
  bool can_access_peers(Operation const& operation);
  /// 0, or errno of an access to the words of another rank. Each rank has one to read, then one for
  /// each rank to write.
  int access_words(int rank) const;
  /// Throws the error of an access to the memory of @p rank that failed with @p error.
  [[noreturn]] void fail(Operation const& operation, char const* access, int rank,
                         std::size_t bytes, int error);
  void copy(Operation const& operation, Part const& from, std::byte* to, std::size_t bytes);
  /// @param parts by rank
  void reduce(Operation const& operation, std::vector<Part> const& parts, std::int64_t count,
              Target const& target);

  void broadcast_from_both(Operation const& operation, std::byte* data);
  void reduce_direct(Operation const& operation, std::byte* data);
  void reduce_staged(Operation const& operation, std::byte* data);
  void reduce_small(Operation const& operation, std::byte* data);
  void reduce_slice(Operation const& operation, Chunk const& chunk, Slice slice, std::byte* to);
  void copy_slices(Operation const& operation, Chunk const& chunk, std::byte* to);

  Group group_;
  NodeControl control_;
  SharedAllocator allocator_;
  PathLimits limits_;
  std::optional<bool> can_access_peers_;
  std::vector<std::uint64_t> words_;  ///< while can_access_peers() finds out
  std::vector<std::byte> copies_;     ///< copies of the peers' private memory, while it is reduced
};

}  // namespace tessera::comm::detail
