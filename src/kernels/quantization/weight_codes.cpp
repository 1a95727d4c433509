#include "tessera/kernels/quantization/weight_codes.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "launch/convert.hpp"
#include "launch/launch.hpp"
#include "optimizer/quantized_chunk.hpp"
#include "tessera/core/error.hpp"

namespace tessera::kernels {
namespace {

using detail::for_chunks;
using detail::HostSpace;
using detail::launch_range;
using detail::parallel_rows;
using detail::store;
using detail::with_type;
using memory::ConstTensorView;
using memory::Queue;
using memory::TensorView;

/// The numbers of NormalFloat4, as bitsandbytes has them.
constexpr float nf4_numbers[16] = {
    -0x1.000000p+0f, -0x1.647362p-1f, -0x1.0cd660p-1f, -0x1.946540p-2f,
    -0x1.23449ap-2f, -0x1.7a6a7ep-3f, -0x1.74f0e2p-4f, 0x0.0p+0f,
    0x1.45f5fep-4f,  0x1.4995c6p-3f,  0x1.f809bap-3f,  0x1.5a0674p-2f,
    0x1.c34970p-2f,  0x1.200f56p-1f,  0x1.722766p-1f,  0x1.000000p+0f};

/// Elements of a row of a launch, a multiple of a block.
constexpr std::int64_t tile = 16 * WeightCodes::block;

/// How the elements of nf4 become numbers.
struct Nf4 {
  float const* map;     ///< null: the scales are in fp32
  float const* scales;  ///< after the offset, with a map
  std::uint8_t const* scale_codes;
  std::uint8_t const* codes;
  float number[16];

  KOKKOS_FUNCTION float absmax(std::int64_t block) const {
    if (!map) return scales[block];
    float const product = map[scale_codes[block]] * scales[1 + block / WeightCodes::scale_block];
    return rounded_sum(product, scales[0]);
  }
  /// A sum that no compiler contracts with the product before it: bitsandbytes rounds twice.
  KOKKOS_FUNCTION static float rounded_sum(float product, float offset) {
    float const volatile rounded = product;
    return rounded + offset;
  }
  KOKKOS_FUNCTION float operator()(std::int64_t i, float scale) const {
    int const pair = codes[i / 2];
    return number[i % 2 == 0 ? pair >> 4 : pair & 15] * scale;
  }
  KOKKOS_FUNCTION float scale_of(std::int64_t i) const { return absmax(i / WeightCodes::block); }
  /// Elements from @p i on that have the scale of @p i.
  KOKKOS_FUNCTION std::int64_t run(std::int64_t i) const {
    return WeightCodes::block - i % WeightCodes::block;
  }
};

struct Int8 {
  float const* absmax;
  std::int8_t const* codes;
  std::int64_t columns;

  KOKKOS_FUNCTION float operator()(std::int64_t i, float scale) const {
    return static_cast<float>(codes[i]) * scale;
  }
  KOKKOS_FUNCTION float scale_of(std::int64_t i) const {
    return absmax[i / columns] * (1.0f / 127.0f);
  }
  KOKKOS_FUNCTION std::int64_t run(std::int64_t i) const { return columns - i % columns; }
};

/// One tile of the output per row.
template <class T, class Numbers>
struct DecodeWeights {
  Numbers numbers;
  T* out;
  std::int64_t numel, rows, columns;
  bool transposed;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t row) const {
    std::int64_t const first = row * tile, left = numel - first;
    for_chunks(team, left < tile ? left : tile, [&](std::int64_t begin, int n) {
      std::int64_t const from = first + begin;
      if (transposed)
        for (std::int64_t at = from; at < from + n; ++at) {
          std::int64_t const i = at % rows * columns + at / rows;
          store(out[at], numbers(i, numbers.scale_of(i)));
        }
      else
        decode_runs(from, from + n);
    });
  }
  KOKKOS_FUNCTION void decode_runs(std::int64_t begin, std::int64_t end) const {
    while (begin < end) {
      std::int64_t const run = begin + numbers.run(begin), stop = run < end ? run : end;
      float const scale = numbers.scale_of(begin);
      for (std::int64_t i = begin; i < stop; ++i) store(out[i], numbers(i, scale));
      begin = stop;
    }
  }
};

template <class Numbers>
void decode(Queue& q, TensorView out, Numbers const& numbers, WeightCodes const& codes) {
  with_type(out.dtype(), "decode_weights", [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_rows(q, "tessera::kernels::decode_weights", ceil_divide(codes.numel(), tile),
                  DecodeWeights<T, Numbers>{numbers, out.as<T>(), codes.numel(), codes.rows,
                                            codes.columns, codes.transposed});
  });
}

float largest_magnitude(float const* values, std::int64_t numel) {
  float largest = 0.0f;
  for (std::int64_t i = 0; i < numel; ++i) largest = std::max(largest, std::abs(values[i]));
  return largest;
}

/// One block of the values per row, on the host.
struct EncodeNf4 {
  float const* values;
  float* absmax;
  std::uint8_t* codes;
  std::int64_t numel;

  /// The number of borders below @p value. Borders are halfway between neighbors.
  static int code(float value) {
    int out = 0;
    for (int k = 0; k < 15; ++k)
      out += value > (nf4_numbers[k] + nf4_numbers[k + 1]) / 2.0f ? 1 : 0;
    return out;
  }
  void operator()(std::int64_t row) const {
    std::int64_t const first = row * WeightCodes::block,
                       n = std::min(WeightCodes::block, numel - first);
    float const largest = largest_magnitude(values + first, n);
    bool const is_complete = n == WeightCodes::block;
    float const divisor = std::max(largest, 1e-38f), factor = 1.0f / divisor;
    absmax[row] = is_complete ? largest : divisor;
    int found[WeightCodes::block + 1];
    for (std::int64_t i = 0; i < n; ++i) {
      float const x = values[first + i], scaled = is_complete ? x * factor : x / divisor;
      found[i] = code(scaled);
    }
    found[n] = code(0.0f);  // the other half of an odd number's byte
    for (std::int64_t i = 0; i < n; i += 2)
      codes[(first + i) / 2] = static_cast<std::uint8_t>(found[i] << 4 | found[i + 1]);
  }
};

/// The code of the number nearest to one of 65536 values between -1 and 1, which bitsandbytes
/// rounds to first.
std::vector<std::uint8_t> nearest_codes() {
  auto const number = numbers_of(DynamicMap::signed_values);
  std::vector<std::uint8_t> out(65536);
  for (std::size_t k = 0, code = 0; k < out.size(); ++k) {
    float const value = -1.0f + 2.0f * static_cast<float>(k) / 65535.0f;
    while (code < 255 && number[code + 1] - value <= value - number[code]) ++code;
    out[k] = static_cast<std::uint8_t>(code);
  }
  return out;
}

/// Double quantization of @p absmax: offset and scales to @p numbers, codes to @p codes.
void encode_scales(std::vector<float>& absmax, float* numbers, std::uint8_t* codes) {
  static auto const nearest = nearest_codes();
  double sum = 0.0;
  for (float const value : absmax) sum += static_cast<double>(value);
  auto const offset = static_cast<float>(sum / static_cast<double>(absmax.size()));
  numbers[0] = offset;
  for (float& value : absmax) value -= offset;
  auto const count = static_cast<std::int64_t>(absmax.size());
  for (std::int64_t first = 0; first < count; first += WeightCodes::scale_block) {
    std::int64_t const n = std::min(WeightCodes::scale_block, count - first);
    float const largest = largest_magnitude(absmax.data() + first, n);
    numbers[1 + first / WeightCodes::scale_block] = largest;
    float const factor = largest > 0.0f ? 1.0f / largest : 0.0f;
    for (std::int64_t i = first; i < first + n; ++i) {
      float const scaled = std::clamp(absmax[static_cast<std::size_t>(i)] * factor, -1.0f, 1.0f);
      float const key = (scaled + 1.0f) * 0.5f * 65535.0f + 0.5f;
      codes[i] = largest > 0.0f ? nearest[static_cast<std::size_t>(key)] : std::uint8_t{0};
    }
  }
}

struct EncodeInt8 {
  float const* values;
  float* absmax;
  std::int8_t* codes;
  std::int64_t columns;

  void operator()(std::int64_t row) const {
    float const* const in = values + row * columns;
    float largest = 0.0f;
    for (std::int64_t i = 0; i < columns; ++i)
      largest = std::max(largest, std::abs(rounded(in[i])));
    absmax[row] = largest;
    // as torch divides a number by a tensor: rounded twice
    float const factor = largest > 0.0f ? 1.0f / largest * 127.0f : 0.0f;
    for (std::int64_t i = 0; i < columns; ++i)
      codes[row * columns + i] = static_cast<std::int8_t>(std::nearbyint(rounded(in[i]) * factor));
  }
  static float rounded(float value) { return static_cast<float>(float16(value)); }
};

std::vector<float> transpose(float const* values, WeightCodes const& codes) {
  std::vector<float> out(static_cast<std::size_t>(codes.numel()));
  for (std::int64_t c = 0; c < codes.columns; ++c)
    for (std::int64_t r = 0; r < codes.rows; ++r)
      out[static_cast<std::size_t>(r * codes.columns + c)] = values[c * codes.rows + r];
  return out;
}

}  // namespace

std::int64_t WeightCodes::numbers() const {
  if (format == WeightFormat::int8) return rows;
  return format == WeightFormat::nf4 ? blocks() : 1 + ceil_divide(blocks(), scale_block);
}

std::int64_t WeightCodes::header_bytes() const {
  return numbers() * std::int64_t{sizeof(float)} +
         (format == WeightFormat::nf4_double ? blocks() : 0);
}

std::int64_t WeightCodes::bytes() const {
  return header_bytes() + (format == WeightFormat::int8 ? numel() : ceil_divide(numel(), 2));
}

void encode_weights(WeightCodes const& codes, float const* values, std::uint8_t* out) {
  std::vector<float> in_order;
  if (codes.transposed) values = (in_order = transpose(values, codes)).data();
  auto* const numbers = reinterpret_cast<float*>(out);
  std::uint8_t* const elements = out + codes.header_bytes();
  constexpr char name[] = "tessera::kernels::encode_weights";
  if (codes.format == WeightFormat::int8)
    return launch_range(
        HostSpace(), name, codes.rows,
        EncodeInt8{values, numbers, reinterpret_cast<std::int8_t*>(elements), codes.columns});
  std::vector<float> absmax(static_cast<std::size_t>(codes.blocks()));
  launch_range(HostSpace(), name, codes.blocks(),
               EncodeNf4{values, absmax.data(), elements, codes.numel()});
  if (codes.format == WeightFormat::nf4)
    std::copy(absmax.begin(), absmax.end(), numbers);
  else
    encode_scales(absmax, numbers, out + codes.numbers() * std::int64_t{sizeof(float)});
}

void decode_weights(Queue& q, TensorView out, ConstTensorView in, WeightCodes const& codes) {
  TESSERA_EXPECT(out.numel() == codes.numel() && in.numel() >= codes.bytes() &&
                 in.dtype() == Dtype::uint8);
  auto const* const bytes = in.as<std::uint8_t>();
  auto const* const numbers = reinterpret_cast<float const*>(bytes);
  std::uint8_t const* const elements = bytes + codes.header_bytes();
  if (codes.format == WeightFormat::int8)
    return decode(q, out,
                  Int8{numbers, reinterpret_cast<std::int8_t const*>(elements), codes.columns},
                  codes);
  bool const is_double = codes.format == WeightFormat::nf4_double;
  float const* const map =
      is_double ? detail::table_for(q, DynamicMap::signed_values)->number : nullptr;
  Nf4 nf4{.map = map,
          .scales = numbers,
          .scale_codes = bytes + codes.numbers() * std::int64_t{sizeof(float)},
          .codes = elements,
          .number = {}};
  std::copy(std::begin(nf4_numbers), std::end(nf4_numbers), std::begin(nf4.number));
  decode(q, out, nf4, codes);
}

}  // namespace tessera::kernels
