#pragma once
/// A pool of reusable flat buffers of unit size. Which buffer take() returns depends only on the
/// order of calls, never on time, so that all ranks allocate together. After the first step the
/// pool allocates no more.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/memory/queue.hpp"
#include "transfer/comm_buffer.hpp"

namespace tessera::zero::detail {

class BufferPool {
 public:
  struct Entry {
    memory::TensorView data;  ///< flat, of the requested length
    memory::Event ready;      ///< the buffer may be written after this event
    std::size_t index = 0;
  };

  BufferPool(std::string name, Dtype dtype, comm::Collectives& comm)
      : name_(std::move(name)), dtype_(dtype), comm_(comm) {}

  /// The smallest free buffer that is large enough and at most twice as large as needed, else a new
  /// one. Collective when it allocates.
  Entry take(std::int64_t numel);
  /// The buffer may be written again after @p ready.
  void give_back(Entry const& entry, memory::Event ready);
  /// Free buffers may be written only after @p ready, which is later than the events that
  /// give_back() received. They are taken in the order of their allocation then, so that the same
  /// units get the same buffers in each step, as kept device graphs want it.
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
  std::vector<Free> free_;  ///< in the order in which they may be written
  memory::Event floor_;     ///< ready event of new buffers
};

}  // namespace tessera::zero::detail
