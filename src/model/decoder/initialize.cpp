#include "tessera/model/decoder/causal_lm.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tessera/core/error.hpp"
#include "tessera/core/random.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::model {
namespace {

/// FNV-1a, 64 bits: Fowler, Noll, Vo; the stream of a parameter's random numbers.
std::uint64_t hash_of(std::string_view name) {
  std::uint64_t h = 0xCBF29CE484222325u;
  for (char const c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return h;
}

/// Elements 4 b .. 4 b + 3 from one Philox block: two pairs of  sqrt(-2 ln u) (cos, sin)(2 pi v),
/// u in (0, 1]. Box & Muller, Ann. Math. Statist. 29 (1958) 610.
void normal_block(Philox const& random, std::uint64_t block, double stddev, float (&out)[4]) {
  Philox::Block const bits = random(block);
  for (int pair = 0; pair < 2; ++pair) {
    double const u = (static_cast<double>(bits.v[2 * pair]) + 1.0) * 0x1.0p-32;
    double const angle =
        2.0 * std::numbers::pi * static_cast<double>(bits.v[2 * pair + 1]) * 0x1.0p-32;
    double const radius = stddev * std::sqrt(-2.0 * std::log(u));
    out[2 * pair] = static_cast<float>(radius * std::cos(angle));
    out[2 * pair + 1] = static_cast<float>(radius * std::sin(angle));
  }
}

void fill_normal(Philox const& random, double stddev, std::int64_t first, std::int64_t numel,
                 float* out) {
  float four[4];
  for (std::int64_t element = first; element < first + numel;) {
    normal_block(random, static_cast<std::uint64_t>(element) / 4, stddev, four);
    std::int64_t const in_block = element % 4;
    std::int64_t const count = std::min(4 - in_block, first + numel - element);
    std::copy_n(four + in_block, count, out + (element - first));
    element += count;
  }
}

void fill_uniform(Philox const& random, double bound, std::int64_t first, std::int64_t numel,
                  float* out) {
  for (std::int64_t i = 0; i < numel; ++i) {
    double const u = random.uniform(static_cast<std::uint64_t>(first + i));
    out[i] = static_cast<float>(bound * (2.0 * u - 1.0));
  }
}

/// fill(first, numel, out) for parts of the range on the threads of the host. The value of an
/// element depends on its index only, so the parts do not change it.
template <class Fill>
void fill_in_parallel(std::int64_t first, std::int64_t numel, float* out, Fill const& fill) {
  constexpr std::int64_t part = std::int64_t{1} << 14;
  std::int64_t const parts = ceil_divide(numel, part);
#pragma omp parallel for schedule(static) if (parts > 1)
  for (std::int64_t i = 0; i < parts; ++i)
    fill(first + i * part, std::min(part, numel - i * part), out + i * part);
}

}  // namespace

void initialize_parameter(memory::ParameterSpec const& spec, std::uint64_t seed, std::int64_t first,
                          std::int64_t numel, float* out) {
  TESSERA_EXPECT(first >= 0 && numel >= 0 && first + numel <= spec.numel(), spec.name,
                 ": elements ", first, " + ", numel);
  Philox const random{.seed = seed, .stream = hash_of(spec.name)};
  using Kind = memory::Initializer::Kind;
  switch (spec.init.kind) {
    case Kind::zeros:
      std::fill_n(out, numel, 0.0f);
      break;
    case Kind::ones:
      std::fill_n(out, numel, 1.0f);
      break;
    case Kind::normal:
      fill_in_parallel(first, numel, out, [&](std::int64_t from, std::int64_t count, float* to) {
        fill_normal(random, spec.init.stddev, from, count, to);
      });
      break;
    case Kind::uniform:
      fill_in_parallel(first, numel, out, [&](std::int64_t from, std::int64_t count, float* to) {
        fill_uniform(random, spec.init.bound, from, count, to);
      });
      break;
  }
  if (spec.init.zero_row < 0) return;
  std::int64_t const width = spec.numel() / spec.shape[0],
                     begin = std::max(first, spec.init.zero_row * width),
                     end = std::min(first + numel, (spec.init.zero_row + 1) * width);
  if (begin < end) std::fill_n(out + (begin - first), end - begin, 0.0f);
}

}  // namespace tessera::model
