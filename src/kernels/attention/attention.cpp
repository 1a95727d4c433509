#include "tessera/kernels/attention/attention.hpp"

#include <cmath>

#include "attention/attention_amx.hpp"
#include "attention/attention_launch.hpp"
#include "attention/attention_tiles.hpp"
#include "launch/element_types.hpp"
#include "launch/host_tasks.hpp"
#include "launch/timed.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels {
namespace {

using detail::fast_exp;
using detail::HeadRows;
using detail::key_tile;
using detail::ProductMode;
using detail::tile_rows;

constexpr int query_tile = 128;

/// Host traversal (device: detail/attention_device.hpp). One tile of queries of one head against
/// all its key tiles. Width is the padded head width when it is known at compile time, else 0. Each
/// row's sums run over the keys in their order, whatever the tiling of the queries.
template <class T, int Width>
struct AttentionTile {
  static constexpr int max_width = Width > 0 ? Width : detail::max_head_dim;

  detail::AttentionRows<T> in;
  HeadRows<T> out;
  float* lse;
  std::int64_t tiles;
  detail::SoftCap cap{in.shape.mask.soft_cap};

  int width() const { return Width > 0 ? Width : detail::padded_head(in.shape.head_dim); }

  struct State {
    alignas(64) float q[query_tile * max_width];    ///< scale * q
    alignas(64) float sum[query_tile * max_width];  ///< sum of P v
    alignas(64) float running_max[query_tile], running_sum[query_tile];
    alignas(64) float rows[key_tile * max_width];  ///< keys, then values
    alignas(64) float keys[max_width * key_tile];  ///< transposed
  };

  void operator()(std::int64_t task) const {
    AttentionShape const& shape = in.shape;
    std::int64_t const head = task / tiles, t0 = task % tiles * query_tile, b = head / shape.heads;
    int const h = static_cast<int>(head % shape.heads), kv = h / in.group();
    int const count = static_cast<int>(std::min<std::int64_t>(query_tile, shape.sequence - t0));
    int const groups = ceil_divide(count, tile_rows);
    State state;
    detail::pack_rows(state.q, width(), in.query, {b, t0, h, groups * tile_rows}, shape.scale);
    std::fill(state.sum, state.sum + groups * tile_rows * width(), 0.0f);
    std::fill(state.running_max, state.running_max + query_tile,
              -std::numeric_limits<float>::infinity());
    std::fill(state.running_sum, state.running_sum + query_tile, 0.0f);
    for (std::int64_t s = in.seen(b).first_key_tile(t0, key_tile); s < t0 + count; s += key_tile) {
      detail::pack_rows(state.rows, width(), in.key, {b, s, kv, key_tile});
      detail::transpose_tile(state.keys, key_tile, {state.rows, width()}, key_tile, width());
      detail::pack_rows(state.rows, width(), in.value, {b, s, kv, key_tile});
      for (int group = 0; group < groups; ++group) attend(state, head, t0, group * tile_rows, s);
    }
    for (int r = 0; r < count; ++r) {
      detail::unpack_row(out.row(b, t0 + r, h), state.sum + r * width(), shape.head_dim,
                         1.0f / state.running_sum[r]);
      lse[head * shape.sequence + t0 + r] = state.running_max[r] + std::log(state.running_sum[r]);
    }
  }

  /// tile_rows queries from row r0 of the tile against the keys from position s.
  void attend(State& state, std::int64_t head, std::int64_t t0, int r0, std::int64_t s) const {
    std::int64_t const sequence = in.shape.sequence;
    detail::KeySpan const span = detail::span_of(t0 + r0, s, sequence);
    detail::SeenInRow const row = in.seen(head / in.shape.heads);
    if (span.keys <= 0 || s + key_tile <= row.first_key(t0 + r0)) return;
    alignas(64) float p[tile_rows * key_tile];
    detail::multiply_rows<detail::Operand::plain>({p, key_tile}, {state.q + r0 * width(), width()},
                                                  {state.keys, key_tile}, {span.padded, width()},
                                                  ProductMode::overwrite);
    for (int r = 0; r < tile_rows; ++r)
      weigh(state, {head, t0 + r0 + r, s, row.first_key(t0 + r0 + r)}, r0 + r, span,
            p + r * key_tile);
    detail::multiply_rows<detail::Operand::plain>({state.sum + r0 * width(), width()},
                                                  {p, key_tile}, {state.rows, width()},
                                                  {width(), span.keys}, ProductMode::add);
  }

  /// A query of a head, the tile of keys from position s, and the first key that the query sees.
  struct Place {
    std::int64_t head, t, s, first;
  };
  /// row = P f of one query, row r of the tile, whose sum is scaled to the new running max.
  void weigh(State& state, Place const& at, int r, detail::KeySpan const& span, float* row) const {
    std::int64_t const sequence = in.shape.sequence;
    detail::SeenKeys const seen = detail::seen_keys(span, at.first, at.t, at.s);
    if (seen.none()) return std::fill(row, row + span.padded, 0.0f);
    if (cap.active()) detail::cap_scores(row, span.padded, cap);
    detail::mask_scores(row, seen, span.padded);
    float const correction =
        detail::update_softmax(row, span.padded, state.running_max[r], state.running_sum[r]);
    if (correction != 1.0f) {
      float* const sum = state.sum + r * width();
      for (int c = 0; c < width(); ++c) sum[c] *= correction;
    }
    if (!in.drop.active()) return;
    float factor[key_tile];
    in.drop.fill(static_cast<std::uint64_t>((at.head * sequence + at.t) * sequence + at.s),
                 seen.end, factor);
    for (int c = seen.begin; c < seen.end; ++c) row[c] *= factor[c];
  }
};

template <class T, int Width>
void launch_tiles(Queue& q, detail::AttentionRows<T> const& in, HeadRows<T> const& out,
                  float* lse) {
  std::int64_t const tiles = ceil_divide(in.shape.sequence, query_tile);
  detail::launch_tasks(q, "tessera::kernels::attention", in.shape.batch * in.shape.heads * tiles,
                       AttentionTile<T, Width>{in, out, lse, tiles});
}

}  // namespace

void attention(Queue& q, AttentionConfig const& config, AttentionOutput const& to,
               AttentionInput const& from) {
  AttentionShape const& shape = config.shape;
  TensorView const& out = to.out;
  detail::check_attention(shape);
  TESSERA_EXPECT(out.numel() == shape.batch * shape.sequence * shape.heads * shape.head_dim);
  TESSERA_EXPECT(to.lse.numel() == shape.batch * shape.sequence * shape.heads);
  detail::check_documents(shape, from.documents);
  if (out.empty() || detail::is_planned(q, config, 2.0)) return;
  if (q.kind() == memory::QueueKind::stream)
    return detail::attention_on_device(q, config, to, from);
  if (config.dtype == Dtype::bf16 && detail::has_amx_bf16()) {
    detail::note_route("attention", detail::amx_route);
    detail::AttentionOperands<bfloat16> const operands(config, from);
    return detail::attention_by_amx(q, operands.in, operands.packed(out.data()),
                                    to.lse.as<float>());
  }
  detail::note_route("attention", "tiles on the host");
  detail::with_type(config.dtype, "attention", [&](auto tag) {
    using T = typename decltype(tag)::type;
    detail::AttentionOperands<T> const operands(config, from);
    HeadRows<T> const rows = operands.packed(out.data());
    float* const lse = to.lse.as<float>();
    switch (detail::padded_head(shape.head_dim)) {
      case 64:
        return launch_tiles<T, 64>(q, operands.in, rows, lse);
      case 128:
        return launch_tiles<T, 128>(q, operands.in, rows, lse);
      default:
        return launch_tiles<T, 0>(q, operands.in, rows, lse);
    }
  });
}

}  // namespace tessera::kernels
