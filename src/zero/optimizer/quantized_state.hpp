#pragma once
/// A quantized state, in 8-bit codes, of the region that this rank updates. A chunk of codes is on
/// one rank (alignment_for()), so that its update and its codes are the same for any number of
/// ranks and any stage.

#include <cstdint>
#include <vector>

#include "layout/stage_rules.hpp"
#include "tessera/comm/base/collectives.hpp"
#include "tessera/kernels/optimizer/quantized_values.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/optim/optimizer_spec.hpp"

namespace tessera::zero::detail {

/// bitsandbytes keeps fp32 states of parameters with fewer elements than this.
inline constexpr std::int64_t min_quantized_numel = 4096;

/// Whether the states of a parameter are quantized. transformers' Trainer keeps fp32 states of
/// embeddings.
bool is_quantized(UnitLayout const& unit, ParameterSlot const& parameter);

/// Bytes of one state of a unit: a code for each element of a unit with quantized parameters, and
/// the fp32 values of the parameters that keep them.
std::int64_t quantized_bytes(UnitLayout const& unit);

class QuantizedState {
 public:
  QuantizedState(optim::StateSpec const& spec, Ownership const& ownership,
                 memory::MemorySpace space);

  std::size_t bytes() const { return codes_.bytes() + values_.bytes(); }
  /// First code of the region of @p unit; null when no parameter of it is quantized.
  std::uint8_t* codes(UnitIndex unit) const;
  /// fp32 value of element @p at of the region; null when the parameter is quantized.
  float* values(UnitIndex unit, std::size_t parameter, UnitOffset at) const;

  /// Values of this rank's shard of each unit. @p absmax and @p out: host memory of each shard.
  void read(memory::Queue& queue, std::vector<float*> const& absmax,
            std::vector<float*> const& out) const;
  /// Sets this rank's shards from @p values, to the codes that are nearest for @p absmax.
  void write(memory::Queue& queue, std::vector<float*> const& absmax,
             std::vector<float*> const& values);
  /// All-gathers the shards that the ranks have written, where every rank holds all. Blocks the
  /// host.
  void replicate(comm::Collectives& comm, std::int64_t bucket_size, memory::Event const& after);

 private:
  /// A run of one parameter in this rank's shard.
  struct Run {
    std::int64_t shard_offset = 0, numel = 0;
    std::int64_t code = 0, value = -1;  ///< first of it; a value of -1: codes
  };
  std::vector<Run> runs_of(UnitIndex unit) const;

  Ownership ownership_;
  kernels::DynamicMap map_;
  std::vector<std::int64_t> code_begins_;                ///< per unit; -1: no codes
  std::vector<std::vector<std::int64_t>> value_begins_;  ///< per unit and parameter; -1: codes
  memory::Buffer codes_, values_;
};

}  // namespace tessera::zero::detail
