#pragma once
/// A save in phases, so that training continues while the disk works. The phases:
/// docs/explanation/save-protocol.md.

#include <cstddef>
#include <memory>
#include <optional>

#include "tessera/checkpoint/save/node_memory.hpp"
#include "tessera/checkpoint/save/save.hpp"

namespace tessera::checkpoint {

/// At most one save is in flight. All calls but disk_works() are collective; they make no MPI call
/// on the disk's thread.
///   begin()    directory and free space, snapshot; the write of this rank's shard starts on the
///   disk queue advance()  after every write: records to rank 0, which publishes on its disk queue;
///   after that: the outcome
/// A failure in any phase ends the save on all ranks: its directory is removed, older checkpoints
/// and `latest` stay, the next call throws.
class BackgroundSaver {
 public:
  /// What the write reads.
  enum class Source {
    in_place,  ///< the states themselves: they must not change until the save has ended
    snapshot,  ///< copies in host memory that this object keeps for the next save; the states are
               ///< free when begin() returns
  };

  /// @param comm outlives the saver
  /// @param copy_threads  host threads that make a snapshot
  explicit BackgroundSaver(comm::Collectives& comm, int copy_threads = 1);
  /// Waits for this rank's disk work. A save that is not committed leaves its temporary directory
  /// to remove_unfinished_saves().
  ~BackgroundSaver();

  /// Bytes of host memory that a snapshot takes on this rank.
  static std::size_t snapshot_bytes(zero::PartitionPlan const& plan, StateLayers const& layers);
  /// Gets that memory now, and its pages in the background: the first copy takes no longer than
  /// later ones. Not collective. @throws OutOfMemoryError
  void reserve(zero::PartitionPlan const& plan, StateLayers const& layers);

  /// @pre !in_flight(). The plan and the units of @p request outlive the save. @throws IoError on
  /// every rank
  void begin(SaveRequest const& request, StateViews const& states, Source source);
  /// Begins a save to the memory of the nodes. Its phases are those of a save to disk; the second
  /// one sends the shards. It counts when all ranks have compared all copies with their checksums.
  /// An older checkpoint in memory stays until then. The request's directory, files, model and
  /// `keep` have no effect.
  void begin_in_memory(NodeMemory const& memory, SaveRequest request, StateViews const& states,
                       Source source);
  bool in_flight() const;
  /// The step of the save in flight, or -1.
  std::int64_t step() const;
  /// Whether this rank's disk queue is at work. A save advances when it is on no rank.
  bool disk_works() const;
  /// The next phase. @pre in_flight() and disk_works() on no rank. @throws IoError on every rank
  /// @return the checkpoint when that was the last phase
  std::optional<SavedCheckpoint> advance();
  /// All phases that are left, in a row. @pre in_flight()
  SavedCheckpoint finish();
  /// Checkpoints that a save has replaced or pruned are deleted on rank 0 after it has ended. Until
  /// they are gone. @pre !in_flight(). Collective.
  void finish_deletion();

 private:
  void begin_flight(StateViews const& states, Source source);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::checkpoint
