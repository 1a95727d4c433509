#pragma once
/// All-gathers of quantized weights: each rank sends codes of its shard, and every rank decodes the
/// same codes, its own included. Wang et al., "ZeRO++", ICLR'24, section 3.1 (qwZ).

#include <optional>
#include <vector>

#include "tessera/kernels/quantization/chunk_codes.hpp"
#include "weights/gather_source.hpp"

namespace tessera::zero::detail {

class QuantizedGather final : public GatherSource {
 public:
  QuantizedGather(StoreContext const& context, ShardStore& shards);

  /// Encodes this rank's shard of @p unit on the compute queue and starts the all-gather of codes.
  Gather start(UnitIndex unit, BufferPool::Entry const& out) override;
  /// Decodes the gathered codes.
  void finish(UnitIndex unit, BufferPool::Entry const& out) override;
  /// Codes that nobody has decoded are not needed any more.
  void drop(UnitIndex unit) override;
  void add_bytes(WeightReport& report) const override { report.buffer_bytes += pool_.bytes(); }

 private:
  kernels::QuantizedRegions regions(UnitIndex unit) const;
  /// Starts the all-gather of the codes of @p unit from the compute queue's work so far.
  comm::Pending all_gather(UnitIndex unit, memory::TensorView codes);

  StoreContext context_;
  ShardStore& shards_;
  kernels::QuantizedFormat format_;
  BufferPool pool_;
  /// Codes of each unit between start() and finish() or drop().
  std::vector<std::optional<BufferPool::Entry>> codes_;
};

}  // namespace tessera::zero::detail
