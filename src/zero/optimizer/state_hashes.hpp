#pragma once
/// Finds master weights and optimizer states that change in memory between two updates: hashes of
/// what an update leaves are compared with those of what the next one finds.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "optimizer/update_schedule.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/queue.hpp"

namespace tessera::zero::detail {

/// Covers the master weights and the element-wise states, in values or codes, in memory and on a
/// drive. The scales of codes, states per row, column or parameter, and compressed steps are not
/// covered.
class StateHashes {
 public:
  /// @param compute  queue of the steps that no worker updates
  StateHashes(UpdateSchedule const& schedule, std::vector<Dtype> dtypes, memory::Queue& compute);

  /// Enqueues the comparison with what the last update of @p step has left, or the last comparison
  /// has found: a change is found once.
  void compare(memory::Queue& queue, UpdateStep const& step, optim::Segments const& segments);
  /// Enqueues the hash of what the update of @p step has left.
  void keep(memory::Queue& queue, UpdateStep const& step, optim::Segments const& segments);
  /// The states have changed outside an update: the next one compares nothing.
  void forget();
  /// The first unit of which a comparison since the last call has found a change. Blocks the host.
  std::optional<UnitIndex> changed(memory::Queue& worker);

 private:
  struct OfStep {
    std::size_t kept = 0;  ///< 0 or 1: which of its two hashes is the one to compare with
    bool is_kept = false;
  };
  std::uint64_t* hash_at(std::size_t number, UpdateStep const& step) const;
  void hash(memory::Queue& queue, std::size_t number, UpdateStep const& step,
            optim::Segments const& segments) const;
  std::vector<std::uint64_t> take_differences(UpdateQueue of_queue, memory::Queue& queue);

  std::vector<UpdateStep> const& steps_;
  std::vector<Dtype> dtypes_;  ///< dtypes of the states, master weights first
  memory::Queue& compute_;
  std::vector<OfStep> of_steps_;
  /// By UpdateQueue: [3, steps, hash_parts], two hashes and the differences between them
  std::array<memory::Buffer, 2> hashes_;
};

}  // namespace tessera::zero::detail
