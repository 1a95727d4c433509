#pragma once
/// Counter-based random numbers: the value depends on (seed, stream, counter) only, never on who
/// draws it or when, so results are the same on every rank count and after a resume. Philox4x32-10:
/// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11, section 3.3 and table 2.

#include <array>
#include <cstdint>

#include "tessera/core/rounding.hpp"

namespace tessera {

struct Philox {
  std::uint64_t seed = 0;
  std::uint64_t stream =
      0;  ///< names the use (layer, site, step), so that two uses never share numbers

  struct Block {
    std::uint32_t v[4];
  };

  /// Four 32-bit numbers for this counter.
  TESSERA_FUNCTION Block operator()(std::uint64_t counter) const {
    std::uint32_t c0 = static_cast<std::uint32_t>(counter),
                  c1 = static_cast<std::uint32_t>(counter >> 32);
    std::uint32_t c2 = static_cast<std::uint32_t>(stream),
                  c3 = static_cast<std::uint32_t>(stream >> 32);
    std::uint32_t k0 = static_cast<std::uint32_t>(seed),
                  k1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      std::uint64_t const p0 = std::uint64_t{0xD2511F53u} * c0;
      std::uint64_t const p1 = std::uint64_t{0xCD9E8D57u} * c2;
      std::uint32_t const n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
      std::uint32_t const n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c1 = static_cast<std::uint32_t>(p1);
      c3 = static_cast<std::uint32_t>(p0);
      c0 = n0;
      c2 = n2;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
  }

  /// Uniform in [0, 1) with 24 bits, element `index` of the stream (four elements share one block).
  TESSERA_FUNCTION float uniform(std::uint64_t index) const {
    return static_cast<float>((*this)(index >> 2).v[index & 3] >> 8) * 0x1.0p-24f;
  }
};

}  // namespace tessera
