#include "sampling/epoch_order.hpp"

#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "tessera/core/random.hpp"

namespace tessera::data::detail {
namespace {

constexpr std::uint64_t sampler_stream =
    0x53414D50ull << 32;  // "SAMP": a Philox stream apart from those of dropout and initialization

std::vector<std::uint32_t> in_order(std::int64_t samples) {
  std::vector<std::uint32_t> order(static_cast<std::size_t>(samples));
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

/// Above this, torch draws 64 bits for each exchange, so that the modulus has no bias.
bool draws_64_bits(std::size_t samples) {
  return samples >= std::numeric_limits<std::uint32_t>::max() / 20;
}

std::mt19937 torch_generator(std::uint64_t seed) {
  return std::mt19937(static_cast<std::uint32_t>(seed));  // torch keeps the low 32 bits, too
}

std::vector<std::uint32_t> permute(std::int64_t samples, std::mt19937& bits) {
  auto order = in_order(samples);
  bool const wide = draws_64_bits(order.size());
  for (std::size_t at = 0; at + 1 < order.size(); ++at) {
    std::uint64_t draw = bits();
    if (wide) draw = draw << 32 | bits();
    std::swap(order[at], order[at + draw % (order.size() - at)]);
  }
  return order;
}

}  // namespace

std::vector<std::uint32_t> torch_randperm(std::int64_t samples, std::uint64_t seed) {
  auto bits = torch_generator(seed);
  return permute(samples, bits);
}

std::vector<std::uint32_t> torch_global_randperm(std::int64_t samples, std::uint64_t seed,
                                                 std::int64_t epoch) {
  auto bits = torch_generator(seed);
  auto const count = static_cast<std::uint64_t>(samples);
  std::uint64_t const of_permutation =
                          samples > 0 ? (count - 1) * (draws_64_bits(count) ? 2 : 1) : 0,
                      of_loader = 2;
  bits.discard(static_cast<std::uint64_t>(epoch) * (of_loader + of_permutation) + of_loader);
  return permute(samples, bits);
}

/// The choice among n is floor(bits n / 2^64), whose bias is below n / 2^64.
std::vector<std::uint32_t> philox_shuffle(std::int64_t samples, std::uint64_t seed,
                                          std::int64_t epoch) {
  auto order = in_order(samples);
  Philox const random{seed, sampler_stream + static_cast<std::uint64_t>(epoch)};
  for (std::size_t last = order.size(); last-- > 1;) {
    auto const block = random(last);
    std::uint64_t const bits = static_cast<std::uint64_t>(block.v[0]) << 32 | block.v[1];
    auto const chosen =
        static_cast<std::size_t>(static_cast<unsigned __int128>(bits) * (last + 1) >> 64);
    std::swap(order[last], order[chosen]);
  }
  return order;
}

}  // namespace tessera::data::detail
