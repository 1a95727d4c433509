#include "tessera/kernels/quantization/sign_codes.hpp"

#include "launch/launch.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels {
namespace {

using detail::parallel_for;

KOKKOS_FUNCTION inline float signed_scale(std::uint32_t word, int bit, float scale) {
  return (word >> bit & 1u) != 0 ? scale : -scale;
}

/// Elements of a word.
struct Words {
  std::int64_t numel;
  KOKKOS_FUNCTION int size(std::int64_t word) const {
    std::int64_t const left = numel - word * signs_per_word;
    return static_cast<int>(left < signs_per_word ? left : signs_per_word);
  }
  std::int64_t count() const { return ceil_divide(numel, signs_per_word); }
};

template <class T>
KOKKOS_FUNCTION inline T* after_bytes(T* data, std::int64_t bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, unsigned char const, unsigned char>;
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(data) + bytes);
}

struct Scale {
  ScaleCopies out;
  double const* sums;
  std::int64_t numel;
  KOKKOS_FUNCTION void operator()(std::int64_t copy) const {
    *after_bytes(out.first, copy * out.stride) =
        numel > 0 ? static_cast<float>(Kokkos::sqrt(sums[0] / static_cast<double>(numel))) : 0.0f;
  }
};

struct EncodeSigns {
  Words layout;
  std::uint32_t* words;
  float* values;
  float const* scale;
  KOKKOS_FUNCTION void operator()(std::int64_t word) const {
    float* const x = values + word * signs_per_word;
    float const size = *scale;
    int const n = layout.size(word);
    std::uint32_t bits = 0;
    for (int i = 0; i < n; ++i) {
      std::uint32_t const bit = x[i] >= 0.0f ? 1u : 0u;
      bits |= bit << i;
      x[i] -= bit != 0 ? size : -size;
    }
    words[word] = bits;
  }
};

struct AddMean {
  Words layout;
  float* values;
  SignParts parts;
  float share;
  KOKKOS_FUNCTION void operator()(std::int64_t word) const {
    float sums[signs_per_word];
    for (float& sum : sums) sum = 0.0f;
    for (std::int64_t p = 0; p < parts.count; ++p) {
      float const scale = *after_bytes(parts.scales, p * parts.stride) * share;
      std::uint32_t const bits = after_bytes(parts.words, p * parts.stride)[word];
      for (int i = 0; i < signs_per_word; ++i) sums[i] += signed_scale(bits, i, scale);
    }
    int const n = layout.size(word);
    for (int i = 0; i < n; ++i) values[word * signs_per_word + i] += sums[i];
  }
};

struct DecodeSigns {
  Words layout;
  float* out;
  std::uint32_t const* words;
  float const* scale;
  KOKKOS_FUNCTION void operator()(std::int64_t word) const {
    std::uint32_t const bits = words[word];
    float const size = *scale;
    int const n = layout.size(word);
    for (int i = 0; i < n; ++i) out[word * signs_per_word + i] = signed_scale(bits, i, size);
  }
};

}  // namespace

void sign_scale(Queue& q, ScaleCopies const& out, double const* sums, std::int64_t numel) {
  parallel_for(q, "tessera::kernels::sign_scale", out.count, Scale{out, sums, numel});
}

void encode_signs(Queue& q, std::uint32_t* words, float* values, std::int64_t numel,
                  float const* scale) {
  Words const layout{numel};
  parallel_for(q, "tessera::kernels::encode_signs", layout.count(),
               EncodeSigns{layout, words, values, scale});
}

void add_mean_of_signs(Queue& q, float* values, std::int64_t numel, SignParts const& parts) {
  Words const layout{numel};
  parallel_for(q, "tessera::kernels::add_mean_of_signs", layout.count(),
               AddMean{layout, values, parts, 1.0f / static_cast<float>(parts.count)});
}

void decode_signs(Queue& q, float* out, std::int64_t numel, std::uint32_t const* words,
                  float const* scale) {
  Words const layout{numel};
  parallel_for(q, "tessera::kernels::decode_signs", layout.count(),
               DecodeSigns{layout, out, words, scale});
}

}  // namespace tessera::kernels
