#include "tessera/kernels/quantization/chunk_codes.hpp"

#include <bit>
#include <limits>

#include "launch/convert.hpp"
#include "launch/launch.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels {
namespace {

using detail::for_chunks;
using detail::load;
using detail::parallel_rows;
using detail::store;
using detail::with_type;

constexpr std::int64_t scale_bytes = 2;

std::int64_t chunks_of(QuantizedFormat const& format, std::int64_t numel) {
  return ceil_divide(numel, format.chunk);
}

/// Where the scales and codes of a chunk are, and what its codes mean.
struct Layout {
  int bits;
  std::int64_t chunk, numel, chunks, region_bytes;

  explicit Layout(QuantizedRegions const& r)
      : bits(r.format.bits),
        chunk(r.format.chunk),
        numel(r.numel),
        chunks(chunks_of(r.format, r.numel)),
        region_bytes(code_bytes(r.format, r.numel)) {
    TESSERA_EXPECT((bits == 8 || bits == 4) && chunk > 0 && chunk % 32 == 0 && numel % 32 == 0,
                   "codes of ", bits, " bits in chunks of ", chunk, ", regions of ", numel);
  }
  KOKKOS_FUNCTION std::int64_t size(std::int64_t index) const {
    std::int64_t const left = numel - index * chunk;
    return left < chunk ? left : chunk;
  }
  KOKKOS_FUNCTION float scale(std::uint8_t const* region, std::int64_t index) const {
    auto const half = reinterpret_cast<std::uint16_t const*>(region)[index];
    return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
  }
  KOKKOS_FUNCTION void set_scale(std::uint8_t* region, std::int64_t index, float scale) const {
    reinterpret_cast<std::uint16_t*>(region)[index] =
        static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(scale) >> 16);
  }
  template <class Byte>
  KOKKOS_FUNCTION Byte* codes(Byte* region, std::int64_t index) const {
    return region + chunks * scale_bytes + index * chunk * bits / 8;
  }
  KOKKOS_FUNCTION float code(std::uint8_t const* codes, std::int64_t i) const {
    if (bits == 8) return static_cast<float>(static_cast<std::int8_t>(codes[i]));
    int const byte = codes[i / 2];
    int const half = i % 2 == 0 ? byte & 15 : byte >> 4;
    return static_cast<float>(half - ((half & 8) << 1));
  }
};

/// A positive finite value, rounded up to bf16.
KOKKOS_FUNCTION inline float rounded_up(float value) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(value) + 0xFFFFu) & 0xFFFF0000u);
}

KOKKOS_FUNCTION inline int nearest_code(float value, float inverse, int largest) {
  float const scaled = value * inverse;
  // rounds to nearest, ties to even: the magnitudes are far below 2^22
  float const magic = 12582912.0f;
  int const code = static_cast<int>((scaled + magic) - magic);
  return code > largest ? largest : code < -largest ? -largest : code;
}

/// One chunk per row.
template <class T>
struct Encode {
  Layout layout;
  std::uint8_t* out;
  T const* in;
  T* error;
  float keep;
  std::int64_t inner, count;

  KOKKOS_FUNCTION float value(std::int64_t i) const {
    float const x = load(in[i]);
    return error ? x + load(error[i]) : x;
  }

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t row) const {
    std::int64_t const region = row / layout.chunks, index = row % layout.chunks,
                       first = region * layout.numel + index * layout.chunk, n = layout.size(index);
    float largest = 0.0f, bad = 0.0f;
    for_chunks(team, n, [&](std::int64_t begin, int m) {
      for (int i = 0; i < m; ++i) {
        float const x = value(first + begin + i), magnitude = x < 0.0f ? -x : x;
        bool const is_finite = magnitude <= std::numeric_limits<float>::max();
        if (!is_finite) bad = 1.0f;
        if (is_finite && magnitude > largest) largest = magnitude;
      }
    });
    largest = team.max(largest);
    bool const is_finite = team.max(bad) == 0.0f;
    int const most = layout.bits == 8 ? 127 : 7;
    float scale = rounded_up(largest / static_cast<float>(most));
    if (scale < std::numeric_limits<float>::min()) scale = 0.0f;  // its inverse would overflow
    float const inverse = scale > 0.0f && is_finite ? 1.0f / scale : 0.0f;
    std::uint8_t* const to =
        out + (region % inner * (count / inner) + region / inner) * layout.region_bytes;
    if (team.rank() == 0)
      layout.set_scale(to, index, is_finite ? scale : std::numeric_limits<float>::quiet_NaN());
    std::uint8_t* const codes = layout.codes(to, index);
    for_chunks(team, n, [&](std::int64_t begin, int m) {
      for (int i = 0; i < m; i += 2) {
        std::int64_t const at = first + begin + i;
        float const a = value(at), b = value(at + 1);
        int const low = is_finite ? nearest_code(a, inverse, most) : 0,
                  high = is_finite ? nearest_code(b, inverse, most) : 0;
        if (layout.bits == 8) {
          codes[begin + i] = static_cast<std::uint8_t>(low);
          codes[begin + i + 1] = static_cast<std::uint8_t>(high);
        } else {
          codes[(begin + i) / 2] = static_cast<std::uint8_t>((low & 15) | (high & 15) << 4);
        }
        if (!error) continue;
        remember(at, a - static_cast<float>(low) * scale, is_finite);
        remember(at + 1, b - static_cast<float>(high) * scale, is_finite);
      }
    });
  }

  KOKKOS_FUNCTION void remember(std::int64_t i, float lost, bool is_finite) const {
    store(error[i], is_finite ? keep * load(error[i]) + (1.0f - keep) * lost : 0.0f);
  }
};

/// One chunk per row, of `parts` regions that are `count` regions apart.
template <class T>
struct Decode {
  Layout layout;
  T* out;
  std::uint8_t const* in;
  std::int64_t count, parts;
  bool adds;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t row) const {
    std::int64_t const region = row / layout.chunks, index = row % layout.chunks;
    T* const to = out + region * layout.numel + index * layout.chunk;
    for_chunks(team, layout.size(index), [&](std::int64_t begin, int m) {
      float sums[Team::chunk];
      for (int i = 0; i < m; ++i) sums[i] = 0.0f;
      for (std::int64_t p = 0; p < parts; ++p) {
        std::uint8_t const* const from = in + (p * count + region) * layout.region_bytes;
        float const scale = layout.scale(from, index);
        std::uint8_t const* const codes = layout.codes(from, index);
        for (int i = 0; i < m; ++i) sums[i] += layout.code(codes, begin + i) * scale;
      }
      for (int i = 0; i < m; ++i)
        store(to[begin + i], adds ? load(to[begin + i]) + sums[i] : sums[i]);
    });
  }
};

struct PartsToSum {
  char const* kernel;
  std::int64_t count = 1;
  memory::WriteMode mode = memory::WriteMode::overwrite;
};
void decode(Queue& q, TensorView out, ConstTensorView in, QuantizedRegions const& regions,
            PartsToSum const& parts) {
  TESSERA_EXPECT(out.numel() == regions.numel * regions.count &&
                 in.numel() == regions.bytes() * parts.count && in.dtype() == Dtype::uint8);
  Layout const layout(regions);
  with_type(out.dtype(), parts.kernel, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_rows(q, parts.kernel, regions.count * layout.chunks,
                  Decode<T>{layout, out.as<T>(), in.as<std::uint8_t>(), regions.count, parts.count,
                            parts.mode == memory::WriteMode::add});
  });
}

}  // namespace

std::int64_t code_bytes(QuantizedFormat const& format, std::int64_t numel) {
  std::int64_t const bytes = chunks_of(format, numel) * scale_bytes + numel * format.bits / 8;
  return (bytes + 15) / 16 * 16;
}

void encode_chunks(Queue& q, TensorView out, ConstTensorView in, QuantizedRegions const& regions,
                   Encoding const& encoding) {
  TESSERA_EXPECT(in.numel() == regions.numel * regions.count && out.numel() == regions.bytes() &&
                 out.dtype() == Dtype::uint8 && encoding.inner > 0 &&
                 regions.count % encoding.inner == 0);
  Layout const layout(regions);
  with_type(in.dtype(), "encode_chunks", [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_rows(
        q, "tessera::kernels::encode_chunks", regions.count * layout.chunks,
        Encode<T>{layout, out.as<std::uint8_t>(), in.as<T>(), static_cast<T*>(encoding.error),
                  static_cast<float>(encoding.keep), encoding.inner, regions.count});
  });
}

void decode_chunks(Queue& q, TensorView out, ConstTensorView in, QuantizedRegions const& regions) {
  decode(q, out, in, regions, {"tessera::kernels::decode_chunks"});
}

void sum_chunks(Queue& q, TensorView out, ConstTensorView in, QuantizedRegions const& regions,
                std::int64_t parts, memory::WriteMode mode) {
  decode(q, out, in, regions, {"tessera::kernels::sum_chunks", parts, mode});
}

}  // namespace tessera::kernels
