#include "tessera/kernels/loss/embedding.hpp"

#include <algorithm>
#include <vector>

#include "elementwise/dropout.hpp"
#include "launch/convert.hpp"
#include "launch/launch.hpp"
#include "loss/embedding_device.hpp"

namespace tessera::kernels {
namespace {

using detail::for_chunks;
using detail::load;
using detail::store;
using detail::with_type;

/// 1 for all when the dropout is off.
template <int N>
KOKKOS_FUNCTION void factors_of(detail::DropoutFactors const& factors, std::int64_t element,
                                int count, float (&factor)[N]) {
  if (factors.active()) {
    factors.fill(static_cast<std::uint64_t>(element), count, factor);
  } else {
    for (int i = 0; i < count; ++i) factor[i] = 1.0f;
  }
}

template <class T>
struct Embed {
  T* out;
  std::int32_t const *tokens, *ids;
  T const *wte, *wpe;
  std::int64_t sequence, columns;
  detail::DropoutFactors factors;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t position) const {
    T* const y = out + position * columns;
    T const* const token = wte + tokens[position] * columns;
    std::int64_t const place = ids == nullptr ? position % sequence : ids[position];
    T const* const row = wpe == nullptr ? nullptr : wpe + place * columns;
    for_chunks(team, columns, [&](std::int64_t c, int n) {
      float factor[Team::chunk];
      factors_of(factors, position * columns + c, n, factor);
      if (row != nullptr) {
#pragma omp simd
        for (int i = 0; i < n; ++i)
          store(y[c + i], (load(token[c + i]) + load(row[c + i])) * factor[i]);
      } else {
#pragma omp simd
        for (int i = 0; i < n; ++i) store(y[c + i], load(token[c + i]) * factor[i]);
      }
    });
  }
};

/// Host traversal (device: detail/embedding_device.hpp). The first position of a token sums the
/// gradients of all its positions, in order, in fp32; the other positions do nothing. Finding them
/// costs positions^2 / 2 integer comparisons, little compared with the rows moved.
template <class G, class T>
struct EmbedTokensBackward {
  G* dwte;
  T const* dout;
  std::int32_t const* tokens;
  std::int64_t positions, columns;
  bool accumulate;
  detail::DropoutFactors factors;

  /// The first position in [begin, end) of the token, or end.
  KOKKOS_FUNCTION std::int64_t find(std::int32_t token, std::int64_t begin,
                                    std::int64_t end) const {
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

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t position) const {
    std::int32_t const token = tokens[position];
    if (find(token, 0, position) != position) return;
    G* const out = dwte + token * columns;
    for_chunks(team, columns, [&](std::int64_t c, int n) {
      float sums[Team::chunk], factor[Team::chunk];
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
struct EmbedPositionsBackward {
  G* dwpe;
  T const* dout;
  std::int64_t batch, sequence, columns;
  bool accumulate;
  detail::DropoutFactors factors;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t place) const {
    G* const out = dwpe + place * columns;
    for_chunks(team, columns, [&](std::int64_t c, int n) {
      float sums[Team::chunk], factor[Team::chunk];
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

/// call(n) with the columns per thread as a compile-time constant.
template <class T, class Call, class... Data>
void with_pack(std::int64_t columns, Call const& call, Data const*... data) {
  constexpr int pack = detail::pack_of<T>;
  if (detail::in_packs<pack>(columns, data...))
    call(std::integral_constant<int, pack>());
  else
    call(std::integral_constant<int, 1>());
}

template <class G, class T>
struct Backward {
  G *dwte, *dwpe;
  T const* dout;
  std::int32_t const* tokens;
  std::int64_t positions, sequence, columns;
  bool accumulate_wte, accumulate_wpe;
  detail::DropoutFactors factors;
};

template <class G, class T>
void run_on_host(Queue& q, Backward<G, T> const& b) {
  EmbedTokensBackward<G, T> const rule{b.dwte,    b.dout,           b.tokens, b.positions,
                                       b.columns, b.accumulate_wte, b.factors};
  detail::launch_on_host(q, "tessera::kernels::embedding_backward_tokens", b.positions,
                         detail::CallWithRow<EmbedTokensBackward<G, T>>{rule});
  if (b.dwpe == nullptr) return;
  EmbedPositionsBackward<G, T> const places{
      b.dwpe, b.dout, b.positions / b.sequence, b.sequence, b.columns, b.accumulate_wpe, b.factors};
  detail::launch_on_host(q, "tessera::kernels::embedding_backward_positions", b.sequence,
                         detail::CallWithRow<EmbedPositionsBackward<G, T>>{places});
}

template <class G, class T>
void run_on_device(Queue& q, Backward<G, T> const& b, TokenGroups const& groups) {
  detail::TokenSums<G, T> const sums{b.dwte,
                                     groups.parts.as<float>(),
                                     b.dout,
                                     b.tokens,
                                     groups.order.as<std::int32_t>(),
                                     b.positions,
                                     b.columns,
                                     b.accumulate_wte,
                                     b.factors};
  with_pack<T>(
      b.columns,
      [&](auto n) {
        constexpr int pack = decltype(n)::value;
        std::int64_t const packs = b.columns / pack, slices = sums.slices(b.positions);
        detail::parallel_for(q, "tessera::kernels::embedding_backward_tokens", slices * packs,
                             detail::SumTokensOfSlice<G, T, pack>{sums});
        detail::parallel_for(q, "tessera::kernels::embedding_backward_token_parts", slices * packs,
                             detail::SumTokensAcrossSlices<G, T, pack>{sums});
        if (b.dwpe == nullptr) return;
        detail::SumPositions<G, T, pack> const places{
            b.dwpe,           b.dout,   b.positions / b.sequence, b.sequence, b.columns,
            b.accumulate_wpe, b.factors};
        detail::parallel_for(q, "tessera::kernels::embedding_backward_positions",
                             b.sequence * packs, places);
      },
      b.dwte, b.dwpe, b.dout, groups.parts.as<float>());
}

}  // namespace

void embedding(Queue& q, TensorView out, ConstTensorView tokens, ConstTensorView wte,
               PositionTable const& positions, Dropout const& drop) {
  std::int64_t const sequence = tokens.dim(tokens.rank() - 1), columns = wte.dim(1);
  ConstTensorView const &wpe = positions.wpe, &ids = positions.ids;
  TESSERA_EXPECT(out.numel() == tokens.numel() * columns);
  TESSERA_EXPECT(ids.empty() || ids.numel() == tokens.numel());
  TESSERA_EXPECT(wpe.empty() ||
                 (wpe.dim(1) == columns && (!ids.empty() || wpe.dim(0) >= sequence)));
  with_type(out.dtype(), "embedding", [&](auto tag) {
    using T = typename decltype(tag)::type;
    char const* const name = "tessera::kernels::embedding";
    Embed<T> const rule{out.as<T>(),
                        tokens.as<std::int32_t>(),
                        ids.empty() ? nullptr : ids.as<std::int32_t>(),
                        wte.as<T>(),
                        wpe.empty() ? nullptr : wpe.as<T>(),
                        sequence,
                        columns,
                        detail::DropoutFactors(drop)};
    if (!detail::on_device(q))
      return detail::launch_on_host(q, name, tokens.numel(), detail::CallWithRow<Embed<T>>{rule});
    with_pack<T>(
        columns,
        [&](auto n) {
          constexpr int pack = decltype(n)::value;
          detail::EmbedPack<T, pack> const packs{rule.out, rule.tokens, rule.ids, rule.wte,
                                                 rule.wpe, sequence,    columns,  rule.factors};
          detail::parallel_for(q, name, tokens.numel() * (columns / pack), packs);
        },
        rule.out, rule.wte, rule.wpe);
  });
}

void order_by_token(std::int32_t* order, std::int32_t const* tokens, std::int64_t positions) {
  constexpr int digit_bits = 11, digits = 1 << digit_bits;
  auto const n = static_cast<std::size_t>(positions);
  std::vector<std::int32_t> other(n);
  std::int32_t *from = order, *to = other.data();
  for (std::size_t i = 0; i < n; ++i) order[i] = static_cast<std::int32_t>(i);
  std::int32_t const most = n > 0 ? *std::max_element(tokens, tokens + n) : 0;
  for (int shift = 0; shift < 31 && most >> shift > 0; shift += digit_bits) {
    std::int32_t next[digits + 1] = {};
    auto const digit = [&](std::int32_t position) {
      return tokens[position] >> shift & (digits - 1);
    };
    for (std::size_t i = 0; i < n; ++i) ++next[digit(from[i]) + 1];
    for (int d = 0; d < digits; ++d) next[d + 1] += next[d];
    for (std::size_t i = 0; i < n; ++i) to[next[digit(from[i])]++] = from[i];
    std::swap(from, to);
  }
  if (from != order) std::copy(from, from + n, order);
}

std::int64_t embedding_backward_parts(Queue const& q, std::int64_t positions,
                                      std::int64_t columns) {
  return q.kind() == memory::QueueKind::stream
             ? detail::TokenSums<float, float>::slices(positions) * 2 * columns
             : 0;
}

void embedding_backward(Queue& q, Dropout const& drop, EmbeddingGradients const& to,
                        EmbeddingBackwardInput const& from) {
  TensorView const &dwte = to.dwte.view, &dwpe = to.dwpe.view;
  ConstTensorView const &dout = from.dout, &tokens = from.tokens;
  TokenGroups const& groups = from.groups;
  std::int64_t const sequence = tokens.dim(tokens.rank() - 1), columns = dwte.dim(1),
                     positions = tokens.numel();
  TESSERA_EXPECT(dout.numel() == positions * columns);
  TESSERA_EXPECT(dwpe.empty() || (dwpe.dim(1) == columns && dwpe.dim(0) >= sequence));
  TESSERA_EXPECT(!detail::on_device(q) ||
                 (groups.order.numel() == positions &&
                  groups.parts.numel() >= embedding_backward_parts(q, positions, columns)));
  if (to.dwte.mode == WriteMode::overwrite) fill(q, dwte, 0.0f);
  std::int64_t const used = positions > 0 ? sequence : 0;
  if (to.dwpe.mode == WriteMode::overwrite && !dwpe.empty() && dwpe.dim(0) > used)
    fill(q, dwpe.rows(used, dwpe.dim(0) - used), 0.0f);
  if (positions == 0) return;
  with_type(dwte.dtype(), "embedding_backward", [&](auto gradient) {
    with_type(dout.dtype(), "embedding_backward", [&](auto tag) {
      using G = typename decltype(gradient)::type;
      using T = typename decltype(tag)::type;
      Backward<G, T> const b{dwte.as<G>(),
                             dwpe.empty() ? nullptr : dwpe.as<G>(),
                             dout.as<T>(),
                             tokens.as<std::int32_t>(),
                             positions,
                             sequence,
                             columns,
                             to.dwte.mode == WriteMode::add,
                             to.dwpe.mode == WriteMode::add,
                             detail::DropoutFactors(drop)};
      if (detail::on_device(q))
        run_on_device(q, b, groups);
      else
        run_on_host(q, b);
    });
  });
}

}  // namespace tessera::kernels
