#include "tessera/kernels/elementwise/hash.hpp"

#include "launch/launch.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels {
namespace {

/// A row of the launch is a part of the hash.
template <class Bits>
struct HashRule {
  std::uint64_t* hash;
  Bits const* in;
  std::int64_t numel, per_part;
  std::uint64_t first;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t part) const {
    std::int64_t const begin = part * per_part;
    std::int64_t const end = begin + per_part < numel ? begin + per_part : numel;
    std::uint64_t sum = 0;
    for (std::int64_t i = begin + team.rank(); i < end; i += team.size()) {
      auto const place = first + static_cast<std::uint64_t>(i);
      sum += mix_bits(in[i] + place * 0x9E3779B97F4A7C15ull);
    }
    std::uint64_t const total = team.sum(sum);
    if (team.rank() == 0) hash[part] += total;
  }
};

struct DifferenceRule {
  std::uint64_t* differences;
  std::uint64_t const *a, *b;

  KOKKOS_FUNCTION void operator()(std::int64_t part) const {
    differences[part] |= a[part] ^ b[part];
  }
};

template <class Bits>
void launch_hash(Queue& q, std::uint64_t* hash, ConstTensorView in, std::uint64_t first) {
  constexpr auto parts = static_cast<std::int64_t>(hash_parts);
  HashRule<Bits> const rule{hash, static_cast<Bits const*>(in.data()), in.numel(),
                            ceil_divide(in.numel(), parts), first};
  detail::parallel_rows(q, "tessera::kernels::add_hash", parts, rule);
}

}  // namespace

void add_hash(Queue& q, std::uint64_t* hash, ConstTensorView in, std::uint64_t first) {
  if (in.empty()) return;
  switch (size_of(in.dtype())) {
    case 1:
      return launch_hash<std::uint8_t>(q, hash, in, first);
    case 2:
      return launch_hash<std::uint16_t>(q, hash, in, first);
    default:
      TESSERA_EXPECT(size_of(in.dtype()) == 4);
      return launch_hash<std::uint32_t>(q, hash, in, first);
  }
}

void add_differences(Queue& q, std::uint64_t* differences, std::uint64_t const* a,
                     std::uint64_t const* b) {
  detail::parallel_for(q, "tessera::kernels::add_differences",
                       static_cast<std::int64_t>(hash_parts), DifferenceRule{differences, a, b});
}

}  // namespace tessera::kernels
