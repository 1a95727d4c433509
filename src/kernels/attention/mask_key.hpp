#pragma once
/// Seed and offset of a library that draws the dropout masks of attention itself (cuDNN's Philox).

#include <cstdint>

#include "elementwise/dropout.hpp"
#include "tessera/core/random.hpp"

namespace tessera::kernels::detail {

struct MaskKey {
  std::int64_t seed = 0, offset = 0;

  bool operator==(MaskKey const&) const = default;
};

/// A function of the dropout only: of the run's seed, step, layer and first global row. Forward,
/// recomputed and backward passes therefore get the same masks, and so does a resumed run. A block
/// of Philox is a bijection of (stream, first element), so different calls of a run share 93 bits
/// of it only by chance. The offset is a multiple of 4 below 2^31, as generators count draws of
/// four.
TESSERA_FUNCTION inline MaskKey mask_key(Dropout const& drop) {
  Dropout const here = placed(drop);
  Philox::Block const four = Philox{here.seed, here.stream}(here.first_element);
  return {static_cast<std::int64_t>(std::uint64_t{four.v[1]} << 32 | four.v[0]),
          static_cast<std::int64_t>(four.v[2] & 0x7FFFFFFCu)};
}

}  // namespace tessera::kernels::detail
