#include "attention/attention_amx.hpp"

#include "launch/host_tasks.hpp"
#include "tessera/core/error.hpp"
#ifdef TESSERA_AMX_TILES
#include "attention/bf16_tiles.hpp"
#endif

namespace tessera::kernels::detail {

#ifdef TESSERA_AMX_TILES
namespace {

constexpr int keys_of_tile = 128, queries_of_tile = 64;
constexpr int group_rows = amx_block;  ///< queries of one product

/// One query head per task, as AttentionBackward of attention_backward.cpp:
///   dv^T[c, s] = sum_t dout^T[c, t] (P f)[t, s];  dk^T[c, s] = sum_t q^T[c, t] dS[t, s]
///   dq[t, c] = sum_s dS[t, s] k[s, c]
/// P and dS have rows of queries, so that a pair of rows is a row of the right operands. The outer
/// loop runs over key tiles, the inner one over query tiles, in this order and on one thread.
/// Depth is the padded head width when it is known at compile time, else 0.
template <int Depth>
struct AmxAttentionBackward {
  static constexpr int max_depth = Depth > 0 ? Depth : max_head_dim;

  AttentionRowsBackward<bfloat16> from;
  AttentionGradientRows<bfloat16> to;
  float* workspace;
  AttentionSums layout;
  SoftCap cap{from.in.shape.mask.soft_cap};

  AttentionShape const& shape() const { return from.in.shape; }
  int depth() const { return Depth > 0 ? Depth : padded_depth(shape().head_dim); }
  int width() const { return static_cast<int>(layout.width); }

  struct State {
    alignas(64) bfloat16 rows[keys_of_tile * max_depth];
    alignas(64) std::uint32_t k[max_depth / 2 * keys_of_tile];  ///< pairs of columns
    alignas(64) std::uint32_t v[max_depth / 2 * keys_of_tile];
    alignas(64) std::uint32_t key_pairs[keys_of_tile / 2 * max_depth];
    alignas(64) bfloat16 q[queries_of_tile * max_depth], dout[queries_of_tile * max_depth];
    alignas(64) bfloat16 q_transposed[max_depth * queries_of_tile];
    alignas(64) bfloat16 dout_transposed[max_depth * queries_of_tile];
    alignas(64) float scores[queries_of_tile * keys_of_tile], dp[queries_of_tile * keys_of_tile];
    alignas(64) std::uint32_t p_pairs[queries_of_tile / 2 * keys_of_tile];  ///< P f
    alignas(64) std::uint32_t ds_pairs[queries_of_tile / 2 * keys_of_tile];
    alignas(64) bfloat16 ds[queries_of_tile * keys_of_tile];
    alignas(64) float dk[max_depth * keys_of_tile], dv[max_depth * keys_of_tile];  ///< transposed
  };
  struct Head {
    std::int64_t head, b;
    int h, kv;
  };
  /// A tile of queries and one of keys.
  struct Place {
    std::int64_t t, s;
  };

  void operator()(std::int64_t head) const {
    int const h = static_cast<int>(head % shape().heads);
    Head const at{head, head / shape().heads, h, h / from.in.group()};
    AmxTiles const tiles_of_thread;
    State state;
    sum_delta(from, head, layout.delta(workspace, head));
    for (std::int64_t s = 0; s < shape().sequence; s += keys_of_tile) {
      load_keys(state, at, s);
      std::int64_t const end =
          from.in.seen(at.b).end_of_queries(std::min(s + keys_of_tile, shape().sequence) - 1);
      for (std::int64_t t = s; t < end; t += queries_of_tile) {
        load_queries(state, at, t);
        add_products(state, at, {t, s});
      }
      finish_keys(state, at, s);
    }
    float const* const dq = layout.dq(workspace, head);
    for (std::int64_t t = 0; t < shape().sequence; ++t)
      unpack_row(to.dquery.row(at.b, t, at.h), dq + t * width(), shape().head_dim, shape().scale);
  }

  void load_keys(State& state, Head const& at, std::int64_t s) const {
    HeadRange const range{at.b, s, at.kv, keys_of_tile};
    Bf16Rows const rows{state.rows, depth()};
    copy_rows(state.rows, depth(), from.in.value, range);
    pair_columns(state.v, keys_of_tile, rows, keys_of_tile, depth());
    copy_rows(state.rows, depth(), from.in.key, range);
    pair_columns(state.k, keys_of_tile, rows, keys_of_tile, depth());
    pair_rows(state.key_pairs, depth(), rows, keys_of_tile, depth());
    std::fill(state.dk, state.dk + depth() * keys_of_tile, 0.0f);
    std::fill(state.dv, state.dv + depth() * keys_of_tile, 0.0f);
  }
  void load_queries(State& state, Head const& at, std::int64_t t) const {
    HeadRange const range{at.b, t, at.h, queries_of_tile};
    copy_rows(state.q, depth(), from.in.query, range);
    copy_rows(state.dout, depth(), from.dout, range);
    transpose_bf16(state.q_transposed, queries_of_tile, {state.q, depth()}, queries_of_tile,
                   depth());
    transpose_bf16(state.dout_transposed, queries_of_tile, {state.dout, depth()}, queries_of_tile,
                   depth());
  }

  /// The keys of the tile that the queries of a group see; padded is 0 where there are none.
  KeySpan span_of_group(Place const& at, int group) const {
    std::int64_t const t = at.t + group * group_rows;
    if (t >= shape().sequence) return {0, 0};
    KeySpan const span = amx_span(t, at.s, keys_of_tile, shape().sequence);
    return span.keys > 0 ? span : KeySpan{0, 0};
  }

  /// What a tile of queries adds to dk and dv of the tile of keys, and the keys to its dq.
  void add_products(State& state, Head const& head, Place const& at) const {
    constexpr int groups = queries_of_tile / group_rows;
    KeySpan span[groups];
    for (int group = 0; group < groups; ++group) {
      span[group] = span_of_group(at, group);
      int const row = group * group_rows;
      multiply_amx_rows<false>({state.scores + row * keys_of_tile, keys_of_tile},
                               {state.q + row * depth(), depth()}, {state.k, keys_of_tile},
                               span[group].padded, depth());
      multiply_amx_rows<false>({state.dp + row * keys_of_tile, keys_of_tile},
                               {state.dout + row * depth(), depth()}, {state.v, keys_of_tile},
                               span[group].padded, depth());
    }
    for (int group = 0; group < groups; ++group)
      for (int r = group * group_rows; r < (group + 1) * group_rows; r += 2)
        differentiate(state, head, at, span[group], r);
    for (int key = 0; key < span[groups - 1].padded || key < span[0].padded; key += amx_block)
      add_to_keys(state, key, span);
    bool const is_first = at.s <= from.in.seen(head.b).first_key_tile(at.t, keys_of_tile);
    for (int group = 0; group < groups; ++group)
      add_to_queries(state, head, at, span[group], group, is_first);
  }

  /// dv^T += dout^T P f and dk^T += q^T dS for 32 keys from `key`, by the groups that see one.
  template <int Groups>
  void add_to_keys(State& state, int key, KeySpan const (&span)[Groups]) const {
    int first = 0, end = Groups;
    while (first < end && span[first].padded <= key) ++first;
    while (end > first && span[end - 1].padded <= key) --end;
    int const row = first * group_rows, rows = (end - first) * group_rows;
    for (int c = 0; c < depth(); c += amx_block) {
      multiply_amx_block<true, true>(
          {state.dv + c * keys_of_tile + key, keys_of_tile},
          {state.dout_transposed + c * queries_of_tile + row, queries_of_tile},
          {state.p_pairs + row / 2 * keys_of_tile + key, keys_of_tile}, rows);
      multiply_amx_block<true, true>(
          {state.dk + c * keys_of_tile + key, keys_of_tile},
          {state.q_transposed + c * queries_of_tile + row, queries_of_tile},
          {state.ds_pairs + row / 2 * keys_of_tile + key, keys_of_tile}, rows);
    }
  }
  /// dq += dS k of a group.
  void add_to_queries(State& state, Head const& head, Place const& at, KeySpan const& span,
                      int group, bool is_first) const {
    int const row = group * group_rows;
    FloatRows const dq{layout.dq(workspace, head.head) + (at.t + row) * width(), width()};
    Bf16Rows const ds{state.ds + row * keys_of_tile, keys_of_tile};
    Bf16Pairs const keys{state.key_pairs, depth()};
    if (is_first)
      multiply_amx_rows<false>(dq, ds, keys, width(), span.padded);
    else
      multiply_amx_rows<true>(dq, ds, keys, width(), span.padded);
  }

  /// A query against the tile of keys.
  struct Row {
    SeenKeys seen;
    float lse, delta;
    float const* factor;  ///< factor of dropout
  };
  Row row_of(Head const& head, Place const& at, KeySpan const& span, int r, float* factor) const {
    std::int64_t const t = at.t + r;
    if (t >= shape().sequence) return {{0, 0}, 0.0f, 0.0f, factor};
    SeenKeys const seen = seen_keys(span, from.in.seen(head.b).first_key(t), t, at.s);
    std::int64_t const row = head.head * shape().sequence + t;
    return {seen, from.lse[row], layout.delta(workspace, head.head)[t], factor};
  }

  /// P f and dS of rows r and r + 1 of the query tile.
  void differentiate(State& state, Head const& head, Place const& at, KeySpan const& span,
                     int r) const {
    alignas(64) float factors[2][keys_of_tile];
    Row row[2];
    for (int i = 0; i < 2; ++i) {
      row[i] = row_of(head, at, span, r + i, factors[i]);
      if (from.in.drop.active()) fill_factors(factors[i], row[i].seen, head, {at.t + r + i, at.s});
    }
    for (int c = 0; c < span.padded; c += 2 * tile_lanes) {
      TileVector p[2][2], ds[2][2];
      for (int i = 0; i < 2; ++i)
        for (int v = 0; v < 2; ++v)
          differentiate_vector(state, row[i], (r + i) * keys_of_tile, c + v * tile_lanes, p[i][v],
                               ds[i][v]);
      for (int v = 0; v < 2; ++v) {
        int const to_pairs = r / 2 * keys_of_tile + c + v * tile_lanes;
        store_as(state.p_pairs + to_pairs, round_pairs(p[0][v], p[1][v]));
        store_as(state.ds_pairs + to_pairs, round_pairs(ds[0][v], ds[1][v]));
        store_as(state.ds + (r + v) * keys_of_tile + c, round_to_bf16(ds[v][0], ds[v][1]));
      }
    }
  }

  /// Fills @p factor with the dropout factors of the query at.t; they are 0 for keys after those
  /// that it sees.
  void fill_factors(float (&factor)[keys_of_tile], SeenKeys const& seen, Head const& head,
                    Place const& at) const {
    std::fill(factor, factor + keys_of_tile, 0.0f);
    if (seen.none()) return;
    std::int64_t const row = head.head * shape().sequence + at.t;
    from.in.drop.fill(static_cast<std::uint64_t>(row * shape().sequence + at.s), seen.end, factor);
  }

  void differentiate_vector(State const& state, Row const& row, int begin, int key, TileVector& p,
                            TileVector& ds) const {
    TileVector score = load_vector(state.scores + begin + key) * shape().scale, slope;
    TileVector dp = load_vector(state.dp + begin + key);
    if (cap.active()) cap_with_slopes(score, slope);
    p = exp_below_0(
        where_seen(score - row.lse, row.seen, key, -std::numeric_limits<float>::infinity()));
    if (from.in.drop.active()) {
      TileVector const factor = load_vector(row.factor + key);
      ds = p * (dp * factor - row.delta);
      p *= factor;
    } else {
      ds = p * (dp - row.delta);
    }
    if (cap.active()) ds *= slope;
  }
  void cap_with_slopes(TileVector& score, TileVector& slope) const {
    for (int i = 0; i < tile_lanes; ++i) {
      score[i] = cap.value(score[i]);
      slope[i] = cap.slope_at(score[i]);
    }
  }

  void finish_keys(State& state, Head const& at, std::int64_t s) const {
    alignas(64) float rows[keys_of_tile * max_depth];
    for (bool const is_key : {true, false}) {
      transpose_tile(rows, depth(), {is_key ? state.dk : state.dv, keys_of_tile}, depth(),
                     keys_of_tile);
      finish_rows(rows, at, s, is_key);
    }
  }
  void finish_rows(float const* rows, Head const& at, std::int64_t s, bool is_key) const {
    int const keys = static_cast<int>(std::min<std::int64_t>(keys_of_tile, shape().sequence - s));
    float const factor = is_key ? shape().scale : 1.0f;
    HeadRows<bfloat16> const& out = is_key ? to.dkey : to.dvalue;
    float* const sums = is_key ? layout.dk(workspace, at.head) : layout.dv(workspace, at.head);
    for (int i = 0; i < keys; ++i) {
      if (layout.shared)
        unpack_row(sums + (s + i) * width(), rows + i * depth(), width(), factor);
      else
        unpack_row(out.row(at.b, s + i, at.kv), rows + i * depth(), shape().head_dim, factor);
    }
  }
};

template <int Depth>
void launch_heads(memory::Queue& q, AttentionRowsBackward<bfloat16> const& from,
                  AttentionGradientRows<bfloat16> const& to, float* workspace) {
  AttentionSums const layout(from.in.shape);
  launch_tasks(q, "tessera::kernels::attention_backward", layout.heads,
               AmxAttentionBackward<Depth>{from, to, workspace, layout});
}

}  // namespace

void attention_backward_by_amx(memory::Queue& q, AttentionRowsBackward<bfloat16> const& from,
                               AttentionGradientRows<bfloat16> const& to, float* workspace) {
  switch (padded_depth(from.in.shape.head_dim)) {
    case 64:
      return launch_heads<64>(q, from, to, workspace);
    case 128:
      return launch_heads<128>(q, from, to, workspace);
    default:
      return launch_heads<0>(q, from, to, workspace);
  }
}

#else

void attention_backward_by_amx(memory::Queue&, AttentionRowsBackward<bfloat16> const&,
                               AttentionGradientRows<bfloat16> const&, float*) {
  throw InternalError("this build has no attention by AMX");
}

#endif

}  // namespace tessera::kernels::detail
