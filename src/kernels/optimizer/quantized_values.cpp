#include "tessera/kernels/optimizer/quantized_values.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <vector>

#include "optimizer/quantized_chunk.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/stream_queue.hpp"

namespace tessera::kernels {
namespace {

using namespace detail;

/// torch.linspace(0.1, 1, count + 1) in fp32: from both ends, products and sums rounded once.
float boundary(int index, int count) {
  float const first = 0.1f, last = 1.0f;
  float const step = (last - first) / static_cast<float>(count);
  return index < (count + 1) / 2 ? std::fma(step, static_cast<float>(index), first)
                                 : std::fma(-step, static_cast<float>(count - index), last);
}

/// The magnitudes of a map: seven decades with twice as many numbers each.
std::vector<float> magnitudes_of(DynamicMap map) {
  constexpr int decades = 7;
  std::vector<float> out{0.0f};
  for (int decade = 0; decade < decades; ++decade) {
    int const count = (map == DynamicMap::signed_values ? 1 : 2) << decade;
    auto const scale = static_cast<float>(std::pow(10.0, decade + 1 - decades));
    for (int i = 0; i < count; ++i)
      out.push_back(scale * ((boundary(i, count) + boundary(i + 1, count)) / 2.0f));
  }
  out.push_back(1.0f);
  return out;
}

/// The smallest number that is nearer to @p high than to @p low.
float first_nearer(float low, float high) {
  double const middle = (static_cast<double>(low) + static_cast<double>(high)) / 2.0;
  auto const rounded = static_cast<float>(middle);
  return rounded > middle ? rounded : std::nextafter(rounded, 2.0f);
}

QuantizationTable make_table(DynamicMap map) {
  auto const magnitudes = magnitudes_of(map);
  QuantizationTable table{};
  for (std::size_t rank = 0; rank < magnitudes.size(); ++rank) {
    bool const is_signed = map == DynamicMap::signed_values;
    std::size_t const zero = is_signed ? QuantizationTable::zero_of_signed : 0;
    table.number[zero + rank] = magnitudes[rank];
    if (is_signed && rank + 1 < magnitudes.size()) table.number[zero - rank] = -magnitudes[rank];
  }
  std::vector<std::uint32_t> borders;
  for (std::size_t rank = 1; rank < magnitudes.size(); ++rank)
    borders.push_back(
        std::bit_cast<std::uint32_t>(first_nearer(magnitudes[rank - 1], magnitudes[rank])));
  for (std::uint32_t k = 0; k < QuantizationTable::buckets; ++k) {
    std::uint32_t const begin = (k + QuantizationTable::first_key) << 16;
    auto const next = std::upper_bound(borders.begin(), borders.end(), begin);
    auto const end = std::lower_bound(next, borders.end(), begin + 0x10000);
    TESSERA_EXPECT(end - next <= 1, "two numbers of the map in one bucket");
    std::uint32_t const low = next == end ? QuantizationTable::no_border : *next & 0xFFFFu;
    table.bucket[k] =
        static_cast<std::int32_t>(low << 8 | static_cast<std::uint32_t>(next - borders.begin()));
  }
  return table;
}

/// Complete when this returns: kernels on any stream may read it.
memory::Buffer table_on_device(DynamicMap map) {
  memory::Buffer out("quantization table", memory::Purpose::workspace, sizeof(QuantizationTable),
                     memory::MemorySpace::device);
  auto const upload = memory::make_stream_queue(out.name());
  memory::copy(*upload, out.data(), &host_table(map), out.bytes());
  upload->record().wait(out.name(), std::chrono::minutes(1));
  return out;
}

}  // namespace

namespace detail {

QuantizationTable const& host_table(DynamicMap map) {
  static QuantizationTable const of_signed = make_table(DynamicMap::signed_values),
                                 of_unsigned = make_table(DynamicMap::unsigned_values);
  return map == DynamicMap::signed_values ? of_signed : of_unsigned;
}

QuantizationTable const* table_for(memory::Queue& q, DynamicMap map) {
  if (!q.native_stream()) return &host_table(map);  // a planned pass reads no table
  // the driver may be gone before static objects are
  static auto const& of_signed = *new memory::Buffer(table_on_device(DynamicMap::signed_values));
  static auto const& of_unsigned =
      *new memory::Buffer(table_on_device(DynamicMap::unsigned_values));
  return static_cast<QuantizationTable const*>(
      (map == DynamicMap::signed_values ? of_signed : of_unsigned).data());
}

}  // namespace detail

std::span<float const, 256> numbers_of(DynamicMap map) { return host_table(map).number; }

void dequantize(QuantizedValues from, DynamicMap map, std::span<float> out) {
  auto const number = numbers_of(map);
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = number[from.codes[i]] * from.absmax[i / quantization_chunk];
}

void quantize(std::span<float const> values, DynamicMap map, QuantizedValues out) {
  auto const& table = host_table(map);
  for (std::size_t i = 0; i < values.size(); ++i) {
    float const absmax = out.absmax[i / quantization_chunk];
    int const code = map == DynamicMap::signed_values
                         ? QuantizationTable::code<DynamicMap::signed_values>(
                               table.bucket, values[i], divisor_of(absmax))
                         : QuantizationTable::code<DynamicMap::unsigned_values>(
                               table.bucket, values[i], divisor_of(absmax));
    out.codes[i] = static_cast<std::uint8_t>(code);
  }
}

}  // namespace tessera::kernels
