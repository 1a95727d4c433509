#include "tessera/kernels/attention/attention.hpp"

#include "attention/attention_amx.hpp"
#include "attention/attention_cudnn.hpp"
#include "attention/attention_launch.hpp"
#include "attention/attention_sums.hpp"
#include "launch/element_types.hpp"
#include "launch/host_tasks.hpp"
#include "launch/timed.hpp"

namespace tessera::kernels {
namespace {

using detail::AttentionGradientRows;
using detail::AttentionSums;
using detail::fast_exp;
using detail::HeadRows;
using detail::key_tile;
using detail::multiply_rows;
using detail::Operand;
using detail::ProductMode;
using detail::tile_rows;

/// Host traversal (device: detail/attention_backward_device.hpp). One query head per task. With P =
/// softmax(scale q k), f its dropout factors, delta_t = dout_t . out_t:
///   dv_s = sum_t (P f)[t,s] dout_t;  dP = dout v;  dS = P (dP f - delta);  dk_s = sum_t dS[t,s]
///   scale q_t;  dq_t = scale sum_s dS[t,s] k_s
/// P is recomputed from lse, tile by tile. The outer loop runs over key tiles, the inner one over
/// query tiles, in this order and on one thread.
template <class T, int Width>
struct AttentionBackward {
  static constexpr int max_width = Width > 0 ? Width : detail::max_head_dim;

  detail::AttentionRowsBackward<T> from;
  AttentionGradientRows<T> to;
  float* workspace;
  AttentionSums layout;
  detail::SoftCap cap{from.in.shape.mask.soft_cap};

  int width() const { return Width > 0 ? Width : static_cast<int>(layout.width); }

  struct State {
    alignas(64) float k[key_tile * max_width];
    alignas(64) float k_transposed[max_width * key_tile];  ///< transposed
    alignas(64) float v_transposed[max_width * key_tile];
    alignas(64) float q[key_tile * max_width];  ///< scale * q
    alignas(64) float dout[key_tile * max_width];
    alignas(64) float p[key_tile * key_tile];  ///< P f
    alignas(64) float ds[key_tile * key_tile];
    alignas(64) float dk[key_tile * max_width];
    alignas(64) float dv[key_tile * max_width];
  };
  struct Head {
    std::int64_t head, b;
    int h, kv;
  };

  AttentionShape const& shape() const { return from.in.shape; }

  void operator()(std::int64_t head) const {
    int const h = static_cast<int>(head % shape().heads);
    Head const at{head, head / shape().heads, h, h / from.in.group()};
    State state;
    detail::sum_delta(from, head, layout.delta(workspace, head));
    for (std::int64_t s = 0; s < shape().sequence; s += key_tile) {
      load_keys(state, at, s);
      std::int64_t const end =
          from.in.seen(at.b).end_of_queries(std::min(s + key_tile, shape().sequence) - 1);
      for (std::int64_t t = s; t < end; t += key_tile) {
        detail::pack_rows(state.q, width(), from.in.query, {at.b, t, at.h, key_tile},
                          shape().scale);
        detail::pack_rows(state.dout, width(), from.dout, {at.b, t, at.h, key_tile});
        int const groups = static_cast<int>(
            ceil_divide(std::min<std::int64_t>(key_tile, shape().sequence - t), tile_rows));
        for (int group = 0; group < groups; ++group)
          differentiate(state, at, t, group * tile_rows, s);
        add_products(state, at, t, s, groups * tile_rows);
      }
      finish_keys(state, at, s);
    }
    float const* const dq = layout.dq(workspace, head);
    for (std::int64_t t = 0; t < shape().sequence; ++t)
      detail::unpack_row(to.dquery.row(at.b, t, at.h), dq + t * width(), shape().head_dim,
                         shape().scale);
  }

  void load_keys(State& state, Head const& at, std::int64_t s) const {
    detail::pack_rows(state.k, width(), from.in.value, {at.b, s, at.kv, key_tile});
    detail::transpose_tile(state.v_transposed, key_tile, {state.k, width()}, key_tile, width());
    detail::pack_rows(state.k, width(), from.in.key, {at.b, s, at.kv, key_tile});
    detail::transpose_tile(state.k_transposed, key_tile, {state.k, width()}, key_tile, width());
    std::fill(state.dk, state.dk + key_tile * width(), 0.0f);
    std::fill(state.dv, state.dv + key_tile * width(), 0.0f);
  }

  /// P f and dS of tile_rows queries from row r0 of the query tile at t0. Rows beyond the sequence
  /// become 0.
  void differentiate(State& state, Head const& at, std::int64_t t0, int r0, std::int64_t s) const {
    detail::KeySpan const span = detail::span_of(t0 + r0, s, shape().sequence);
    float *const p = state.p + r0 * key_tile, *const ds = state.ds + r0 * key_tile;
    multiply_rows<Operand::plain>({p, key_tile}, {state.q + r0 * width(), width()},
                                  {state.k_transposed, key_tile}, {span.padded, width()},
                                  ProductMode::overwrite);
    multiply_rows<Operand::plain>({ds, key_tile}, {state.dout + r0 * width(), width()},
                                  {state.v_transposed, key_tile}, {span.padded, width()},
                                  ProductMode::overwrite);
    float const *const log_sums = from.lse + at.head * shape().sequence, *const deltas =
                                                                             layout.delta(workspace,
                                                                                          at.head);
    detail::SeenInRow const row = from.in.seen(at.b);
    for (int r = 0; r < tile_rows; ++r) {
      std::int64_t const t = t0 + r0 + r;
      float *const p_row = p + r * key_tile, *const ds_row = ds + r * key_tile;
      if (t >= shape().sequence) {
        std::fill(p_row, p_row + span.padded, 0.0f);
        std::fill(ds_row, ds_row + span.padded, 0.0f);
        continue;
      }
      detail::SeenKeys const seen = detail::seen_keys(span, row.first_key(t), t, s);
      float slope[key_tile];
      if (cap.active()) cap_with_slopes(p_row, slope, span.padded);
      detail::mask_scores(p_row, seen, span.padded);
      float const log_sum = log_sums[t], delta = deltas[t];
      if (from.in.drop.active()) {
        float factor[key_tile] = {};
        from.in.drop.fill(
            static_cast<std::uint64_t>((at.head * shape().sequence + t) * shape().sequence + s),
            std::max(seen.end, 0), factor);
#pragma omp simd
        for (int c = 0; c < span.padded; ++c) {
          float const probability = fast_exp(p_row[c] - log_sum);
          p_row[c] = probability * factor[c];
          ds_row[c] = probability * (ds_row[c] * factor[c] - delta);
        }
      } else {
#pragma omp simd
        for (int c = 0; c < span.padded; ++c) {
          p_row[c] = fast_exp(p_row[c] - log_sum);
          ds_row[c] = p_row[c] * (ds_row[c] - delta);
        }
      }
      if (!cap.active()) continue;
#pragma omp simd
      for (int c = 0; c < span.padded; ++c) ds_row[c] *= slope[c];
    }
  }
  void cap_with_slopes(float* scores, float* slope, int n) const {
    detail::cap_scores(scores, n, cap);
#pragma omp simd
    for (int c = 0; c < n; ++c) slope[c] = cap.slope_at(scores[c]);
  }

  /// dv += (P f)^T dout, dk += dS^T q, dq += dS k for the tile of queries at t and keys at s; only
  /// what the causal mask leaves.
  void add_products(State& state, Head const& at, std::int64_t t, std::int64_t s,
                    int queries) const {
    int const keys = static_cast<int>(std::min<std::int64_t>(key_tile, shape().sequence - s));
    for (int key = 0; key < keys; key += tile_rows) {
      int const first = t == s ? key : 0;  // queries before the key do not see it
      int const corner = first * key_tile + key, row = first * width();
      multiply_rows<Operand::transposed>({state.dv + key * width(), width()},
                                         {state.p + corner, key_tile}, {state.dout + row, width()},
                                         {width(), queries - first}, ProductMode::add);
      multiply_rows<Operand::transposed>({state.dk + key * width(), width()},
                                         {state.ds + corner, key_tile}, {state.q + row, width()},
                                         {width(), queries - first}, ProductMode::add);
    }
    float* const dq = layout.dq(workspace, at.head) + t * width();
    for (int r0 = 0; r0 < queries; r0 += tile_rows) {
      detail::KeySpan const span = detail::span_of(t + r0, s, shape().sequence);
      multiply_rows<Operand::plain>(
          {dq + r0 * width(), width()}, {state.ds + r0 * key_tile, key_tile}, {state.k, width()},
          {width(), span.keys},
          s > from.in.seen(at.b).first_key_tile(t, key_tile) ? ProductMode::add
                                                             : ProductMode::overwrite);
    }
  }

  void finish_keys(State const& state, Head const& at, std::int64_t s) const {
    int const keys = static_cast<int>(std::min<std::int64_t>(key_tile, shape().sequence - s));
    if (layout.shared) {
      std::copy(state.dk, state.dk + keys * width(), layout.dk(workspace, at.head) + s * width());
      std::copy(state.dv, state.dv + keys * width(), layout.dv(workspace, at.head) + s * width());
      return;
    }
    for (int i = 0; i < keys; ++i) {
      detail::unpack_row(to.dkey.row(at.b, s + i, at.kv), state.dk + i * width(), shape().head_dim,
                         1.0f);
      detail::unpack_row(to.dvalue.row(at.b, s + i, at.kv), state.dv + i * width(),
                         shape().head_dim, 1.0f);
    }
  }
};

/// dk and dv of a shared key-value head: its query heads' parts in their order. One (b, kv head,
/// position) per index.
template <class T>
struct AddSharedHeads {
  AttentionShape shape;
  HeadRows<T> dkey, dvalue;
  float* workspace;
  AttentionSums layout;

  void operator()(std::int64_t index) const {
    std::int64_t const t = index % shape.sequence, group = index / shape.sequence,
                       b = group / shape.kv_heads;
    int const kv = static_cast<int>(group % shape.kv_heads), each = shape.heads / shape.kv_heads;
    float dk[detail::max_head_dim] = {}, dv[detail::max_head_dim] = {};
    for (int i = 0; i < each; ++i) {
      std::int64_t const head = b * shape.heads + kv * each + i;
      float const *const k = layout.dk(workspace, head) + t * layout.width, *const v =
                                                                                layout.dv(workspace,
                                                                                          head) +
                                                                                t * layout.width;
      for (int c = 0; c < shape.head_dim; ++c) dk[c] += k[c];
      for (int c = 0; c < shape.head_dim; ++c) dv[c] += v[c];
    }
    detail::unpack_row(dkey.row(b, t, kv), dk, shape.head_dim, 1.0f);
    detail::unpack_row(dvalue.row(b, t, kv), dv, shape.head_dim, 1.0f);
  }
};

template <class T, int Width>
void launch_tiles(Queue& q, detail::AttentionRowsBackward<T> const& from,
                  AttentionGradientRows<T> const& to, float* workspace) {
  AttentionShape const& shape = from.in.shape;
  AttentionSums const layout(shape);
  detail::launch_tasks(q, "tessera::kernels::attention_backward", layout.heads,
                       AttentionBackward<T, Width>{from, to, workspace, layout});
}

template <class T>
void add_shared_heads(Queue& q, AttentionShape const& shape, AttentionGradientRows<T> const& to,
                      float* workspace) {
  AttentionSums const layout(shape);
  if (!layout.shared) return;
  detail::launch_tasks(q, "tessera::kernels::attention_backward_shared_heads",
                       shape.batch * shape.kv_heads * shape.sequence,
                       AddSharedHeads<T>{shape, to.dkey, to.dvalue, workspace, layout});
}

template <class T>
void launch(Queue& q, detail::AttentionRowsBackward<T> const& from,
            AttentionGradientRows<T> const& to, float* sums) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    if (detail::has_amx_bf16()) {
      detail::note_route("attention backward", detail::amx_route);
      return detail::attention_backward_by_amx(q, from, to, sums);
    }
  }
  detail::note_route("attention backward", "tiles on the host");
  switch (detail::padded_head(from.in.shape.head_dim)) {
    case 64:
      return launch_tiles<T, 64>(q, from, to, sums);
    case 128:
      return launch_tiles<T, 128>(q, from, to, sums);
    default:
      return launch_tiles<T, 0>(q, from, to, sums);
  }
}

thread_local AttentionPlanning* planning = nullptr;

}  // namespace

AttentionPlanning::AttentionPlanning(std::optional<CudnnDevice> device)
    : device_(device), outer_(planning) {
  planning = this;
}
AttentionPlanning::~AttentionPlanning() { planning = outer_; }

std::int64_t attention_backward_workspace(Queue const& q, AttentionShape const& shape) {
  if (q.kind() == memory::QueueKind::stream) return shape.batch * shape.heads * shape.sequence;
  return AttentionSums(shape).numel();
}

void attention_backward(Queue& q, AttentionConfig const& config, AttentionGradients const& to,
                        AttentionInput const& from, AttentionSaved const& saved,
                        TensorView workspace) {
  AttentionShape const& shape = config.shape;
  ConstTensorView const &dout = saved.dout, &out = saved.out, &lse = saved.lse;
  detail::check_attention(shape);
  TESSERA_EXPECT(dout.numel() == shape.batch * shape.sequence * shape.heads * shape.head_dim &&
                 out.numel() == dout.numel());
  TESSERA_EXPECT(lse.numel() == shape.batch * shape.sequence * shape.heads);
  TESSERA_EXPECT(workspace.numel() >= attention_backward_workspace(q, shape));
  detail::check_documents(shape, from.documents);
  if (planning && planning->device_ && q.kind() == memory::QueueKind::stream &&
      detail::why_not_cudnn(config, from.documents, *planning->device_).empty()) {
    bool const documents = !from.documents.empty();
    auto const part = detail::cudnn_backward_part(config, documents, *planning->device_);
    planning->workspace_bytes_ =
        std::max(planning->workspace_bytes_,
                 detail::cudnn_backward_bytes(part, documents, *planning->device_));
  }
  if (out.empty() || detail::is_planned(q, config, 5.0)) return;
  if (q.kind() == memory::QueueKind::stream)
    return detail::attention_backward_on_device(q, config, to, from, saved, workspace.as<float>());
  detail::with_type(config.dtype, "attention_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    detail::AttentionOperands<T> const operands(config, from);
    detail::AttentionRowsBackward<T> const inputs{operands.in, operands.packed(dout.data()),
                                                  operands.packed(out.data()), lse.as<float>()};
    AttentionGradientRows<T> const outputs{operands.rows(to.query), operands.rows(to.key),
                                           operands.rows(to.value)};
    launch(q, inputs, outputs, workspace.as<float>());
    add_shared_heads(q, shape, outputs, workspace.as<float>());
  });
}

}  // namespace tessera::kernels
