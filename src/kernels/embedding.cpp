#include "tessera/kernels/embedding.hpp"

#include "detail/convert.hpp"
#include "detail/dropout.hpp"
#include "detail/launch.hpp"

namespace tessera::kernels {
namespace {

using detail::for_chunks;
using detail::load;
using detail::store;
using detail::with_type;

/// 1 for all when the dropout is off.
template <int N>
KOKKOS_FUNCTION void factors_of(detail::DropoutFactors const& factors, std::int64_t element, int count, float (&factor)[N]) {
  if (factors.active()) {
    factors.fill(static_cast<std::uint64_t>(element), count, factor);
  } else {
    for (int i = 0; i < count; ++i) factor[i] = 1.0f;
  }
}

template <class T>
struct Embed {
  T* out;
  std::int32_t const* tokens;
  T const *wte, *wpe;
  std::int64_t sequence, columns;
  detail::DropoutFactors factors;

  template <class Lanes>
  KOKKOS_FUNCTION void operator()(Lanes const& lanes, std::int64_t position) const {
    T* const y = out + position * columns;
    T const* const token = wte + tokens[position] * columns;
    T const* const place = wpe == nullptr ? nullptr : wpe + position % sequence * columns;
    for_chunks(lanes, columns, [&](std::int64_t c, int n) {
      float factor[Lanes::chunk];
      factors_of(factors, position * columns + c, n, factor);
      if (place != nullptr) {
#pragma omp simd
        for (int i = 0; i < n; ++i) store(y[c + i], (load(token[c + i]) + load(place[c + i])) * factor[i]);
      } else {
#pragma omp simd
        for (int i = 0; i < n; ++i) store(y[c + i], load(token[c + i]) * factor[i]);
      }
    });
  }
};

/// The first position of a token sums the gradients of all its positions, in their order, in fp32; the other positions do nothing.
/// Finding them costs positions^2 / 2 comparisons of integers, which is little next to the rows moved.
template <class G, class T>
struct EmbedTokensBackward {
  G* dwte;
  T const* dout;
  std::int32_t const* tokens;
  std::int64_t positions, columns;
  bool accumulate;
  detail::DropoutFactors factors;

  /// The first position in [begin, end) of the token, or end.
  KOKKOS_FUNCTION std::int64_t find(std::int32_t token, std::int64_t begin, std::int64_t end) const {
    constexpr std::int64_t stride = 64;
    std::int64_t at = begin;
    for (; at + stride <= end; at += stride) {
      int found = 0;
#pragma omp simd reduction(| : found)
      for (std::int64_t i = 0; i < stride; ++i) found |= tokens[at + i] == token;
      if (found != 0) break;
    }
    while (at < end && tokens[at] != token) ++at;
    return at;
  }

  template <class Lanes>
  KOKKOS_FUNCTION void operator()(Lanes const& lanes, std::int64_t position) const {
    std::int32_t const token = tokens[position];
    if (find(token, 0, position) != position) return;
    G* const out = dwte + token * columns;
    for_chunks(lanes, columns, [&](std::int64_t c, int n) {
      float sums[Lanes::chunk], factor[Lanes::chunk];
      for (int i = 0; i < n; ++i) sums[i] = accumulate ? load(out[c + i]) : 0.0f;
      for (std::int64_t p = position; p < positions; p = find(token, p + 1, positions)) {
        factors_of(factors, p * columns + c, n, factor);
        T const* const row = dout + p * columns + c;
#pragma omp simd
        for (int i = 0; i < n; ++i) sums[i] += load(row[i]) * factor[i];
      }
#pragma omp simd
      for (int i = 0; i < n; ++i) store(out[c + i], sums[i]);
    });
  }
};

template <class G, class T>
struct EmbedPlacesBackward {
  G* dwpe;
  T const* dout;
  std::int64_t batch, sequence, columns;
  bool accumulate;
  detail::DropoutFactors factors;

  template <class Lanes>
  KOKKOS_FUNCTION void operator()(Lanes const& lanes, std::int64_t place) const {
    G* const out = dwpe + place * columns;
    for_chunks(lanes, columns, [&](std::int64_t c, int n) {
      float sums[Lanes::chunk], factor[Lanes::chunk];
      for (int i = 0; i < n; ++i) sums[i] = accumulate ? load(out[c + i]) : 0.0f;
      for (std::int64_t b = 0; b < batch; ++b) {
        std::int64_t const at = (b * sequence + place) * columns + c;
        factors_of(factors, at, n, factor);
#pragma omp simd
        for (int i = 0; i < n; ++i) sums[i] += load(dout[at + i]) * factor[i];
      }
#pragma omp simd
      for (int i = 0; i < n; ++i) store(out[c + i], sums[i]);
    });
  }
};

}  // namespace

void embedding(Queue& q, TensorView out, ConstTensorView tokens, ConstTensorView wte, ConstTensorView wpe, Dropout const& drop) {
  std::int64_t const sequence = tokens.dim(tokens.rank() - 1), columns = wte.dim(1);
  TESSERA_EXPECT(out.numel() == tokens.numel() * columns);
  TESSERA_EXPECT(wpe.empty() || (wpe.dim(1) == columns && wpe.dim(0) >= sequence));
  with_type(out.dtype(), "embedding", [&](auto tag) {
    using T = typename decltype(tag)::type;
    Embed<T> const rule{out.as<T>(), tokens.as<std::int32_t>(),  wte.as<T>(), wpe.empty() ? nullptr : wpe.as<T>(),
                        sequence,    columns, detail::DropoutFactors(drop)};
    detail::parallel_rows(q, "tessera::kernels::embedding", tokens.numel(), rule);
  });
}

void embedding_backward(Queue& q, TensorView dwte, TensorView dwpe, bool accumulate_wte, bool accumulate_wpe, ConstTensorView dout,
                        ConstTensorView tokens, Dropout const& drop) {
  std::int64_t const sequence = tokens.dim(tokens.rank() - 1), columns = dwte.dim(1), positions = tokens.numel();
  TESSERA_EXPECT(dout.numel() == positions * columns);
  TESSERA_EXPECT(dwpe.empty() || (dwpe.dim(1) == columns && dwpe.dim(0) >= sequence));
  detail::DropoutFactors const factors(drop);
  if (!accumulate_wte) fill(q, dwte, 0.0f);
  if (!accumulate_wpe && !dwpe.empty() && dwpe.dim(0) > sequence)
    fill(q, dwpe.rows(sequence, dwpe.dim(0) - sequence), 0.0f);
  with_type(dwte.dtype(), "embedding_backward", [&](auto gradient) {
    with_type(dout.dtype(), "embedding_backward", [&](auto tag) {
      using G = typename decltype(gradient)::type;
      using T = typename decltype(tag)::type;
      EmbedTokensBackward<G, T> const rule{dwte.as<G>(), dout.as<T>(), tokens.as<std::int32_t>(), positions,
                                           columns,      accumulate_wte, factors};
      detail::parallel_rows(q, "tessera::kernels::embedding_backward_tokens", positions, rule);
      if (dwpe.empty()) return;
      EmbedPlacesBackward<G, T> const places{dwpe.as<G>(), dout.as<T>(), sequence > 0 ? positions / sequence : 0,
                                             sequence,     columns,      accumulate_wpe,
                                             factors};
      detail::parallel_rows(q, "tessera::kernels::embedding_backward_positions", sequence, places);
    });
  });
}

}  // namespace tessera::kernels
