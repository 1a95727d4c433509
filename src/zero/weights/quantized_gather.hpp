#pragma once
/// All-gathers of quantized weights: each rank sends codes of its shard, and every rank decodes the
/// same codes, its own included. Wang et al., "ZeRO++", ICLR'24, section 3.1 (qwZ).

#include "tessera/kernels/quantization/chunk_codes.hpp"
#include "transfer/buffer_pool.hpp"
#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

class QuantizedGather {
 public:
  explicit QuantizedGather(StoreContext const& context);

  struct Codes {
    BufferPool::Entry buffer;
    comm::Pending arriving;
  };
  /// Encodes this rank's shard of @p unit on the compute queue and starts the all-gather.
  Codes start(UnitIndex unit, memory::TensorView shard, memory::Event const& ready);
  /// Decodes the gathered codes to @p out [padded unit] on the compute queue.
  /// @pre the compute queue waits for them
  void decode(UnitIndex unit, BufferPool::Entry const& codes, memory::TensorView out);
  /// Codes that nobody decodes.
  void give_back(BufferPool::Entry const& codes) {
    pool_.give_back(codes, context_.compute.record());
  }
  std::size_t bytes() const { return pool_.bytes(); }

 private:
  kernels::CodeRegions regions(UnitIndex unit) const;

  StoreContext context_;
  kernels::CodeFormat format_;
  BufferPool pool_;
};

}  // namespace tessera::zero::detail
