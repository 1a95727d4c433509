#include "tessera/kernels/attention/attention_decode.hpp"

#include <cstring>

#include "attention/attention_decode_device.hpp"
#include "attention/attention_tiles.hpp"
#include "launch/element_types.hpp"
#include "launch/host_tasks.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels {
namespace {

using detail::decode_chunk;
using detail::DecodeCall;
using detail::fast_exp;
using detail::key_tile;
using detail::load_vector;
using detail::store_vector;
using detail::tile_lanes;
using detail::TileVector;

template <int S, int... Lane>
TileVector add_other_half(TileVector v, std::integer_sequence<int, Lane...>) {
  return v + __builtin_shufflevector(v, v, (Lane ^ S)...);
}
template <int S = tile_lanes / 2>
float sum_of(TileVector v) {
  v = add_other_half<S>(v, std::make_integer_sequence<int, tile_lanes>{});
  if constexpr (S > 1)
    return sum_of<S / 2>(v);
  else
    return v[0];
}

/// The softmax of a range of keys that is not yet divided by its sum, for rows of queries.
template <int Rows>
struct Partial {
  alignas(64) float values[Rows * detail::max_head_dim];  ///< sum of exp(score - max) v
  float max[Rows], sum[Rows];

  void clear(int width) {
    std::fill(values, values + Rows * width, 0.0f);
    std::fill(max, max + Rows, -std::numeric_limits<float>::infinity());
    std::fill(sum, sum + Rows, 0.0f);
  }
};

/// One row of a Partial, here or in the workspace.
struct PartialRow {
  float *values, *max, *sum;
};
/// to = the softmax of both ranges of keys. A range without keys has sum 0.
void merge(PartialRow const& to, PartialRow const& from, int width) {
  if (*from.sum == 0.0f) return;
  float const new_max = std::max(*to.max, *from.max), keep = fast_exp(*to.max - new_max),
              take = fast_exp(*from.max - new_max);
#pragma omp simd
  for (int c = 0; c < width; ++c) to.values[c] = to.values[c] * keep + from.values[c] * take;
  *to.sum = *to.sum * keep + *from.sum * take;
  *to.max = new_max;
}

/// `Rows` queries that share a key-value head: row r is query (first + r) / group of head kv *
/// group + (first + r) % group.
template <class T, int Rows>
struct DecodeBlock {
  DecodeCall<T> call;
  int width;
  std::int64_t blocks, chunks;
  detail::SoftCap cap{call.shape.mask.soft_cap};

  struct Block {
    std::int64_t b, first, length;
    int kv, rows;
  };
  std::int64_t query_of(Block const& at, int r) const { return (at.first + r) / call.group(); }
  int head_of(Block const& at, int r) const {
    return at.kv * call.group() + static_cast<int>((at.first + r) % call.group());
  }
  std::int64_t position_of(Block const& at, int r) const {
    return at.length - call.shape.queries + query_of(at, r);
  }
  Block block_of(std::int64_t index) const {
    std::int64_t const head = index / blocks, first = index % blocks * Rows,
                       b = head / call.shape.kv_heads,
                       rows = call.shape.queries * call.group() - first;
    return {b, first, call.lengths[b], static_cast<int>(head % call.shape.kv_heads),
            static_cast<int>(std::min<std::int64_t>(rows, Rows))};
  }

  /// All chunks of keys of one block, in order.
  void all_chunks(std::int64_t index) const {
    Block const at = block_of(index);
    Partial<Rows> all, one;
    all.clear(width);
    std::int64_t const first = detail::first_key(call.shape.mask, position_of(at, 0)),
                       last = position_of(at, at.rows - 1);
    for (std::int64_t chunk = first / decode_chunk; chunk <= last / decode_chunk; ++chunk) {
      attend(one, at, chunk * decode_chunk);
      for (int r = 0; r < at.rows; ++r) merge(row_of(all, r), row_of(one, r), width);
    }
    for (int r = 0; r < at.rows; ++r) write(row_of(all, r), at.b, query_of(at, r), head_of(at, r));
  }

  /// One chunk of keys of one block, to the workspace.
  void one_chunk(std::int64_t index) const {
    Block const at = block_of(index / chunks);
    std::int64_t const chunk = index % chunks, s = chunk * decode_chunk;
    bool const seen = s <= position_of(at, at.rows - 1) &&
                      s + decode_chunk > detail::first_key(call.shape.mask, position_of(at, 0));
    Partial<Rows> one;
    if (seen) attend(one, at, s);
    for (int r = 0; r < at.rows; ++r) {
      PartialRow const to = part(call.row_index(at.b, query_of(at, r), head_of(at, r)), chunk);
      *to.sum = seen ? one.sum[r] : 0.0f;
      if (*to.sum == 0.0f) continue;
      *to.max = one.max[r];
      std::memcpy(to.values, one.values + r * width,
                  static_cast<std::size_t>(width) * sizeof(float));
    }
  }
  /// The chunks of one query of one head from the workspace, in order.
  void add_chunks(std::int64_t row) const {
    Partial<1> all;
    all.clear(width);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
      merge(row_of(all, 0), part(row, chunk), width);
    std::int64_t const query = row / call.shape.heads;
    write(row_of(all, 0), query / call.shape.queries, query % call.shape.queries,
          static_cast<int>(row % call.shape.heads));
  }

 private:
  struct State {
    alignas(64) float q[Rows * detail::max_head_dim];  ///< scale * q
    alignas(64) float rows[key_tile * detail::max_head_dim];
    alignas(64) float p[Rows * key_tile];
  };

  template <int N>
  PartialRow row_of(Partial<N>& p, int r) const {
    return {p.values + r * width, p.max + r, p.sum + r};
  }
  PartialRow part(std::int64_t row, std::int64_t chunk) const {
    float* const at = call.parts + (row * chunks + chunk) * (width + 2);
    return {at + 2, at, at + 1};
  }
  void write(PartialRow const& from, std::int64_t b, std::int64_t query, int head) const {
    detail::unpack_row(call.out_row(b, query, head), from.values, call.shape.head_dim,
                       1.0f / *from.sum);
  }

  void attend(Partial<Rows>& to, Block const& at, std::int64_t begin) const {
    State state;
    to.clear(width);
    for (int r = 0; r < Rows; ++r) {
      bool const inside = r < at.rows;
      pack(state.q + r * width,
           inside ? call.query_row(at.b, query_of(at, r), head_of(at, r)) : nullptr,
           call.shape.scale);
    }
    std::int64_t const end = std::min(begin + decode_chunk, position_of(at, at.rows - 1) + 1);
    std::int64_t const first =
        std::max(begin, detail::first_key_tile(call.shape.mask, position_of(at, 0), key_tile));
    for (std::int64_t s = first; s < end; s += key_tile) {
      int const keys = static_cast<int>(std::min<std::int64_t>(key_tile, end - s));
      for (int k = 0; k < keys; ++k) pack(state.rows + k * width, call.key.row(at.b, s + k, at.kv));
      for (int k = 0; k < keys; ++k) score(state, k);
      for (int k = 0; k < keys; ++k)
        pack(state.rows + k * width, call.value.row(at.b, s + k, at.kv));
      for (int r = 0; r < Rows; ++r) weigh(to, state, at, r, {s, keys});
      add_values(to, state, keys);
    }
  }

  /// One row of a head as fp32, padded with zeros; nullptr: all zeros.
  void pack(float* to, T const* from, float factor = 1.0f) const {
    int const inside = from == nullptr ? 0 : call.shape.head_dim;
#pragma omp simd
    for (int c = 0; c < inside; ++c) to[c] = detail::load(from[c]) * factor;
    for (int c = inside; c < width; ++c) to[c] = 0.0f;
  }

  /// Column k of p: the products of all queries with key k of the tile.
  void score(State& state, int k) const {
    TileVector sum[Rows] = {};
    for (int c = 0; c < width; c += tile_lanes) {
      TileVector const key = load_vector(state.rows + k * width + c);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) sum[r] += load_vector(state.q + r * width + c) * key;
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) state.p[r * key_tile + k] = sum_of(sum[r]);
  }

  struct Keys {
    std::int64_t first;
    int count;
  };
  /// Row r of p = exp(score - running max), 0 for keys that the query does not see.
  void weigh(Partial<Rows>& to, State& state, Block const& at, int r, Keys const& keys) const {
    float* const row = state.p + r * key_tile;
    int const padded = round_up(keys.count, tile_lanes);
    detail::SeenKeys seen{0, 0};
    if (r < at.rows)
      seen = detail::seen_keys({keys.count, padded},
                               detail::first_key(call.shape.mask, position_of(at, r)),
                               position_of(at, r), keys.first);
    if (seen.none()) return std::fill(row, row + padded, 0.0f);
    if (cap.active()) detail::cap_scores(row, keys.count, cap);
    detail::mask_scores(row, seen, padded);
    float const correction = detail::update_softmax(row, padded, to.max[r], to.sum[r]);
    if (correction == 1.0f) return;
    float* const values = to.values + r * width;
    for (int c = 0; c < width; ++c) values[c] *= correction;
  }

  /// values += p v
  void add_values(Partial<Rows>& to, State const& state, int keys) const {
    constexpr int most = Rows > 4 ? 2 : 4;  // vectors in flight, as far as there are registers
    int c = 0;
    for (; c + most * tile_lanes <= width; c += most * tile_lanes)
      add_columns<most>(to, state, keys, c);
    for (; c < width; c += tile_lanes) add_columns<1>(to, state, keys, c);
  }
  template <int Vectors>
  void add_columns(Partial<Rows>& to, State const& state, int keys, int c) const {
    TileVector sum[Rows][Vectors];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v)
        sum[r][v] = load_vector(to.values + r * width + c + v * tile_lanes);
    }
    for (int k = 0; k < keys; ++k) {
      TileVector value[Vectors];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v)
        value[v] = load_vector(state.rows + k * width + c + v * tile_lanes);
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) sum[r][v] += state.p[r * key_tile + k] * value[v];
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v)
        store_vector(to.values + r * width + c + v * tile_lanes, sum[r][v]);
    }
  }
};

/// Chunks of keys are separate tasks where queries are few; otherwise 0, and a task processes all.
std::int64_t split_chunks(DecodeShape const& shape) {
  constexpr std::int64_t most_queries = 16;
  std::int64_t const chunks = ceil_divide(shape.max_length, decode_chunk);
  return shape.queries <= most_queries && chunks > 1 ? chunks : 0;
}

template <class T, int Rows>
void run_blocks(Queue& q, DecodeCall<T> const& call) {
  DecodeShape const& shape = call.shape;
  std::int64_t const blocks = ceil_divide(shape.queries * call.group(), Rows),
                     chunks = split_chunks(shape), heads = shape.batch * shape.kv_heads;
  DecodeBlock<T, Rows> const rule{call, detail::padded_head(shape.head_dim), blocks, chunks};
  char const* const name = "tessera::kernels::attention_decode";
  if (chunks == 0)
    return detail::launch_tasks(q, name, heads * blocks,
                                [rule](std::int64_t i) { rule.all_chunks(i); });
  detail::launch_tasks(q, name, heads * blocks * chunks,
                       [rule](std::int64_t i) { rule.one_chunk(i); });
  detail::launch_tasks(q, "tessera::kernels::attention_decode_chunks",
                       shape.batch * shape.queries * shape.heads,
                       [rule](std::int64_t i) { rule.add_chunks(i); });
}

}  // namespace

std::int64_t attention_decode_workspace(Queue const& q, DecodeShape const& shape) {
  if (q.kind() == memory::QueueKind::stream) return 0;
  return shape.batch * shape.queries * shape.heads * split_chunks(shape) *
         (detail::padded_head(shape.head_dim) + 2);
}

void attention_decode(Queue& q, DecodeShape const& shape, TensorView out, DecodeInput const& from,
                      TensorView workspace) {
  AttentionShape const checked{shape.batch,    shape.queries, shape.heads, shape.kv_heads,
                               shape.head_dim, shape.scale,   shape.mask};
  detail::check_attention(checked);
  TESSERA_EXPECT(out.numel() == shape.batch * shape.queries * shape.heads * shape.head_dim &&
                 from.lengths.numel() == shape.batch);
  std::int64_t const needed = attention_decode_workspace(q, shape);
  TESSERA_EXPECT(workspace.numel() >= needed);
  if (out.empty()) return;
  float* const parts = needed > 0 ? workspace.as<float>() : nullptr;
  detail::with_type(shape.dtype, "attention_decode", [&](auto tag) {
    using T = typename decltype(tag)::type;
    DecodeCall<T> const call = detail::decode_call<T>(shape, out, from, parts);
    std::int64_t const rows = shape.queries * call.group();
    if (q.kind() == memory::QueueKind::stream) return detail::decode_on_device(q, call);
    if (rows == 1) return run_blocks<T, 1>(q, call);
    if (rows == 2) return run_blocks<T, 2>(q, call);
    if (rows <= 4) return run_blocks<T, 4>(q, call);
    run_blocks<T, 8>(q, call);
  });
}

}  // namespace tessera::kernels
