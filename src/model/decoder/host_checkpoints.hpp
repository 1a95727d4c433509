#pragma once
/// Activation checkpoints in host memory (cpu_checkpointing): the inputs of blocks leave the device
/// in the forward pass and come back in the backward pass, while other blocks compute. Chen et al.,
/// "Training Deep Nets with Sublinear Memory Cost", 2016; Rajbhandari et al., "ZeRO", SC'20, 6.1.

#include <cstddef>
#include <memory>
#include <vector>

#include "layers/pass.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::model::detail {

class HostCheckpoints {
 public:
  /// Inputs on the device: one is read, one written, and one is copied.
  static constexpr std::size_t slots = 3;

  HostCheckpoints() = default;
  ~HostCheckpoints();
  HostCheckpoints(HostCheckpoints&&) = default;
  HostCheckpoints& operator=(HostCheckpoints&&) = default;

  /// The blocks of a pass; those before `first` have no backward pass.
  struct Blocks {
    std::size_t first = 0, end = 0;
    std::int64_t width = 0;
  };
  /// Bytes in host memory. The inputs of the last blocks stay on the device.
  static std::size_t bytes(Blocks const& blocks, std::int64_t positions, Dtype dtype);

  /// Allocates the slots in the arena of the pass. A pass that is only planned has no host memory.
  void begin(PassContext const& pass, Blocks const& blocks);
  /// Where the input of block @p i (the output of the last one, if there is none) may be written.
  TensorView input_buffer(PassContext const& pass, std::size_t i) const;
  /// Starts the copy of the input of block @p i to the host after it was computed.
  void leave(PassContext const& pass, std::size_t i);
  /// After the last use of the slot of block @p i by a later one.
  void come_back(PassContext const& pass, std::size_t i);
  /// Orders the backward pass of block @p i after the return of its input.
  void arrive(PassContext const& pass, std::size_t i) const;

 private:
  bool leaves(std::size_t i) const { return i >= blocks_.first && i + slots <= blocks_.end; }
  void* host(std::size_t i) const;

  Blocks blocks_;
  std::vector<TensorView> slots_;      ///< [R, width] of the residual stream
  std::vector<memory::Event> copied_;  ///< the last copy of each block's input
  memory::Buffer host_;
  std::unique_ptr<Queue> copies_;
};

}  // namespace tessera::model::detail
