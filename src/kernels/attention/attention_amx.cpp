#include "attention/attention_amx.hpp"

#include <cmath>

#include "launch/host_tasks.hpp"
#include "tessera/core/error.hpp"
#ifdef TESSERA_AMX_TILES
#include "attention/bf16_tiles.hpp"
#include "tessera/core/rounding.hpp"
#endif

namespace tessera::kernels::detail {

#ifdef TESSERA_AMX_TILES
namespace {

constexpr int query_tile = 128;
constexpr int group_rows = amx_block;  ///< queries of one product

/// One tile of queries of one head against all its key tiles, as AttentionTile of attention.cpp.
/// Depth is the padded head width when it is known at compile time, else 0.
template <int Depth>
struct AmxAttentionTile {
  static constexpr int max_depth = Depth > 0 ? Depth : max_head_dim;

  AttentionRows<bfloat16> in;
  HeadRows<bfloat16> out;
  float* lse;
  std::int64_t tiles;
  SoftCap cap{in.shape.mask.soft_cap};

  int depth() const { return Depth > 0 ? Depth : padded_depth(in.shape.head_dim); }
  /// Columns of out.
  int width() const { return Depth > 0 ? Depth : padded_head(in.shape.head_dim); }

  struct State {
    alignas(64) bfloat16 q[query_tile * max_depth];
    alignas(64) float sum[query_tile * max_depth];  ///< sum of P v
    alignas(64) float running_max[query_tile];
    alignas(64) float running_sum[query_tile * tile_lanes];  ///< one per vector element
    alignas(64) bfloat16 rows[key_tile * max_depth];
    alignas(64) std::uint32_t keys[max_depth / 2 * key_tile];
    alignas(64) std::uint32_t values[key_tile / 2 * max_depth];
    alignas(64) float scores[query_tile * key_tile];
    alignas(64) bfloat16 p[query_tile * key_tile];
  };

  void operator()(std::int64_t task) const {
    AttentionShape const& shape = in.shape;
    std::int64_t const head = task / tiles, t0 = task % tiles * query_tile, b = head / shape.heads;
    int const h = static_cast<int>(head % shape.heads);
    int const count = static_cast<int>(std::min<std::int64_t>(query_tile, shape.sequence - t0));
    int const groups = ceil_divide(count, group_rows);
    AmxTiles const tiles_of_thread;
    State state;
    copy_rows(state.q, depth(), in.query, {b, t0, h, groups * group_rows});
    std::fill(state.sum, state.sum + groups * group_rows * width(), 0.0f);
    std::fill(state.running_max, state.running_max + query_tile,
              -std::numeric_limits<float>::infinity());
    std::fill(state.running_sum, state.running_sum + query_tile * tile_lanes, 0.0f);
    for (std::int64_t s = in.seen(b).first_key_tile(t0, key_tile); s < t0 + count; s += key_tile) {
      load_keys(state, {b, s, h / in.group(), key_tile});
      attend(state, head, t0, groups, s);
    }
    for (int r = 0; r < count; ++r) {
      float sum = 0.0f;
      for (int i = 0; i < tile_lanes; ++i) sum += state.running_sum[r * tile_lanes + i];
      unpack_row(out.row(b, t0 + r, h), state.sum + r * width(), shape.head_dim, 1.0f / sum);
      lse[head * shape.sequence + t0 + r] = state.running_max[r] + std::log(sum);
    }
  }

  void load_keys(State& state, HeadRange const& range) const {
    copy_rows(state.rows, depth(), in.key, range);
    pair_columns(state.keys, key_tile, {state.rows, depth()}, key_tile, depth());
    copy_rows(state.rows, depth(), in.value, range);
    pair_rows(state.values, depth(), {state.rows, depth()}, key_tile, depth());
  }

  /// The groups of queries of the tile against the keys from position s. One step for all groups
  /// after the other: a product does not wait for what has just been written.
  void attend(State& state, std::int64_t head, std::int64_t t0, int groups, std::int64_t s) const {
    SeenInRow const row = in.seen(head / in.shape.heads);
    int first = 0;  // groups that see nothing: before the keys, or with a first key beyond them
    auto const span_of_group = [&](int group) {
      return amx_span(t0 + group * group_rows, s, key_tile, in.shape.sequence);
    };
    while (first < groups && span_of_group(first).keys <= 0) ++first;
    int end = first;
    while (end < groups && row.first_key(t0 + end * group_rows) < s + key_tile) ++end;
    for (int group = first; group < end; ++group)
      multiply_amx_rows<false>({state.scores + group * group_rows * key_tile, key_tile},
                               {state.q + group * group_rows * depth(), depth()},
                               {state.keys, key_tile}, span_of_group(group).padded, depth());
    for (int group = first; group < end; ++group) {
      KeySpan const span = span_of_group(group);
      for (int r = group * group_rows; r < (group + 1) * group_rows; ++r) {
        Place const at{head, t0 + r, s, seen_keys(span, row.first_key(t0 + r), t0 + r, s)};
        if (span.padded == key_tile)
          weigh<key_tile / tile_lanes>(state, at, r);
        else
          weigh<amx_block / tile_lanes>(state, at, r);
      }
    }
    for (int group = first; group < end; ++group)
      multiply_amx_rows<true>({state.sum + group * group_rows * width(), width()},
                              {state.p + group * group_rows * key_tile, key_tile},
                              {state.values, depth()}, width(), span_of_group(group).padded);
  }

  /// A query of a head, the tile of keys from position s, and which of them it sees.
  struct Place {
    std::int64_t head, t, s;
    SeenKeys seen;
  };
  /// P f of one query, row r of the tile, whose sum is scaled to the new running max. `Vectors` of
  /// keys.
  template <int Vectors>
  void weigh(State& state, Place const& at, int r) const {
    bfloat16* const to = state.p + r * key_tile;
    if (at.seen.none()) return std::fill(to, to + Vectors * tile_lanes, bfloat16{});
    TileVector score[Vectors];
    load_scores(score, state.scores + r * key_tile, at.seen);
    TileVector most = score[0];
#pragma GCC unroll 4
    for (int v = 1; v < Vectors; ++v) most = most > score[v] ? most : score[v];
    float const new_max = max_of(most, state.running_max[r]);
    TileVector sum{};
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      score[v] = exp_below_0(score[v] - new_max);
      sum += score[v];
    }
    rescale(state, r, new_max, sum);
    if (in.drop.active()) drop(score, at);
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; v += 2)
      store_as(to + v * tile_lanes, round_to_bf16(score[v], score[v + 1]));
  }

  template <int Vectors>
  void load_scores(TileVector (&score)[Vectors], float* row, SeenKeys const& seen) const {
    if (cap.active()) {
#pragma omp simd
      for (int c = 0; c < Vectors * tile_lanes; ++c) row[c] = cap.value(row[c] * in.shape.scale);
    }
    float const scale = cap.active() ? 1.0f : in.shape.scale;
    bool const all = seen.begin == 0 && seen.end >= Vectors * tile_lanes;
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) {
      score[v] = load_vector(row + v * tile_lanes) * scale;
      if (!all)
        score[v] =
            where_seen(score[v], seen, v * tile_lanes, -std::numeric_limits<float>::infinity());
    }
  }
  static float max_of(TileVector const& v, float most) {
#pragma omp simd reduction(max : most)
    for (int i = 0; i < tile_lanes; ++i) most = v[i] > most ? v[i] : most;
    return most;
  }

  /// Sums of row r to the new running max. @p sum has those of the new probabilities, one per
  /// vector element.
  void rescale(State& state, int r, float new_max, TileVector const& sum) const {
    float const correction = fast_exp(state.running_max[r] - new_max);
    float* const sums = state.running_sum + r * tile_lanes;
    store_vector(sums, load_vector(sums) * correction + sum);
    state.running_max[r] = new_max;
    if (correction == 1.0f) return;
    float* const values = state.sum + r * width();
    for (int c = 0; c < width(); c += tile_lanes)
      store_vector(values + c, load_vector(values + c) * correction);
  }

  template <int Vectors>
  void drop(TileVector (&score)[Vectors], Place const& at) const {
    alignas(64) float factor[key_tile] = {};
    in.drop.fill(
        static_cast<std::uint64_t>((at.head * in.shape.sequence + at.t) * in.shape.sequence + at.s),
        at.seen.end, factor);
    for (int v = 0; v < Vectors; ++v) score[v] *= load_vector(factor + v * tile_lanes);
  }
};

template <int Depth>
void launch_tiles(Queue& q, AttentionRows<bfloat16> const& in, HeadRows<bfloat16> const& out,
                  float* lse) {
  std::int64_t const tiles = ceil_divide(in.shape.sequence, query_tile);
  launch_tasks(q, "tessera::kernels::attention", in.shape.batch * in.shape.heads * tiles,
               AmxAttentionTile<Depth>{in, out, lse, tiles});
}

}  // namespace

void attention_by_amx(Queue& q, AttentionRows<bfloat16> const& in, HeadRows<bfloat16> const& out,
                      float* lse) {
  switch (padded_depth(in.shape.head_dim)) {
    case 64:
      return launch_tiles<64>(q, in, out, lse);
    case 128:
      return launch_tiles<128>(q, in, out, lse);
    default:
      return launch_tiles<0>(q, in, out, lse);
  }
}

#else

void attention_by_amx(Queue&, AttentionRows<bfloat16> const&, HeadRows<bfloat16> const&, float*) {
  throw InternalError("this build has no attention by AMX");
}

#endif

}  // namespace tessera::kernels::detail
