#pragma once
/// Reusable flat buffers for whole units. Which slot is taken depends on the order of calls only,
/// never on time, so that all ranks allocate together; once a step has been through, later ones
/// find what they need.

#include <cstdint>
#include <string>
#include <vector>

#include "detail/comm_buffer.hpp"
#include "tessera/memory/queue.hpp"

namespace tessera::zero::detail {

class SlotPool {
 public:
  struct Slot {
    memory::TensorView data;  ///< flat, as long as was asked for
    memory::Event ready;      ///< before it nothing may be written to the slot
    std::size_t index = 0;
  };

  SlotPool(std::string name, Dtype dtype, comm::Collectives& comm)
      : name_(std::move(name)), dtype_(dtype), comm_(comm) {}

  /// The smallest free slot that is large enough and at most twice as large as needed, else a new
  /// one. Collective when new.
  Slot take(std::int64_t numel);
  /// The slot may be written again after @p ready.
  void give_back(Slot const& slot, memory::Event ready);
  /// Free slots may be written only after @p ready, a later point than those they were given back
  /// with.
  void delay_free(memory::Event const& ready);
  std::size_t bytes() const;

 private:
  struct Free {
    std::size_t index;
    memory::Event ready;
  };
  std::string name_;
  Dtype dtype_;
  comm::Collectives& comm_;
  std::vector<CommBuffer> buffers_;
  std::vector<std::int64_t> capacity_;
  std::vector<Free> free_;  ///< the one given back longest ago first
  memory::Event floor_;     ///< ready event of new slots
};

}  // namespace tessera::zero::detail
