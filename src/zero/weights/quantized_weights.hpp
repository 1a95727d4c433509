#pragma once
/// Frozen matrices that are kept as codes (EngineConfig::quantized_base). The codes are weights of
/// a store of bytes, resident or sharded as those of the stage; a lease decodes them into a buffer.
/// Dettmers et al., "QLoRA", NeurIPS'23.

#include <cstdint>
#include <vector>

#include "tessera/kernels/quantization/weight_codes.hpp"
#include "transfer/buffer_pool.hpp"
#include "weights/frozen_part.hpp"

namespace tessera::zero::detail {

class QuantizedWeights final : public FrozenPart {
 public:
  /// @param config its limits are of elements. Collective.
  QuantizedWeights(EngineConfig const& config, std::vector<memory::UnitSpec> const& units,
                   StageRules const& rules, StoreContext const& like);

  void set_prefetch_order(std::vector<UnitIndex> acquisitions) override;
  /// The matrices of @p unit in the compute dtype.
  memory::WeightLease acquire(UnitIndex unit, memory::Queue& compute) override;
  /// Every rank reads and encodes complete matrices, because the offset of double quantization is
  /// the mean of all scales of one; it keeps its part of the codes.
  void fill(WeightFill const& fill) override;
  std::vector<float> shard(UnitIndex unit) const override;
  std::int64_t code_bytes() const override { return plan_.parameter_count(); }
  WeightReport report() const override;

 private:
  using Codes = std::vector<std::vector<kernels::WeightCodes>>;  ///< [unit][matrix]
  QuantizedWeights(EngineConfig const& config, ParameterSubset matrices, Codes codes,
                   StageRules const& rules, StoreContext const& like);
  /// Copies the part of a matrix's codes that this rank owns.
  void store(UnitIndex unit, std::size_t parameter, std::uint8_t const* codes);

  Codes codes_;
  BufferPool values_;
};

}  // namespace tessera::zero::detail
