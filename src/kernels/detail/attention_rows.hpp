#pragma once
/// Attention row by row: the lanes share a head's elements, every score is one sum over the lanes. It runs in any execution space
/// and needs no workspace; the host has the faster tiles, a CUDA stream without a vendor's attention runs this.

#include "detail/attention_operands.hpp"
#include "detail/launch.hpp"

namespace tessera::kernels::detail {

static_assert(SingleLane::chunk >= widest_head && device_lanes * 4 >= widest_head, "a lane has at most one chunk of a head");

/// A lane's elements of one row.
template <class Lanes>
struct LaneRow {
  static constexpr int chunk = Lanes::chunk;
  float v[chunk];

  /// factor * row of `count` elements; 0 where the lane has none.
  template <class T>
  KOKKOS_FUNCTION void read(Lanes const& lanes, T const* row, int count, float factor = 1.0f) {
    int const first = static_cast<int>(lanes.rank()) * chunk;
    for (int i = 0; i < chunk; ++i) v[i] = first + i < count ? load(row[first + i]) * factor : 0.0f;
  }
  template <class T>
  KOKKOS_FUNCTION void write(Lanes const& lanes, T* row, int count, float factor) const {
    int const first = static_cast<int>(lanes.rank()) * chunk;
    for (int i = 0; i < chunk && first + i < count; ++i) store(row[first + i], v[i] * factor);
  }
  KOKKOS_FUNCTION void clear() {
    for (int i = 0; i < chunk; ++i) v[i] = 0.0f;
  }
  KOKKOS_FUNCTION void add(LaneRow const& other, float factor) {
    for (int i = 0; i < chunk; ++i) v[i] += factor * other.v[i];
  }
  KOKKOS_FUNCTION void scale(float factor) {
    for (int i = 0; i < chunk; ++i) v[i] *= factor;
  }
  KOKKOS_FUNCTION float dot(Lanes const& lanes, LaneRow const& other) const {
    float sum = 0.0f;
    for (int i = 0; i < chunk; ++i) sum += v[i] * other.v[i];
    return lanes.sum(sum);
  }
};

/// One (b, h, t) per row.
template <class T>
struct AttentionRowForward {
  AttentionRows<T> in;
  HeadRows<T> out;
  float* lse;

  template <class Lanes>
  KOKKOS_FUNCTION void operator()(Lanes const& lanes, std::int64_t row) const {
    AttentionShape const& shape = in.shape;
    std::int64_t const head = row / shape.sequence, t = row % shape.sequence, b = head / shape.heads;
    int const h = static_cast<int>(head % shape.heads), kv = h / in.group();
    LaneRow<Lanes> q, other, sum;
    q.read(lanes, in.query.row(b, t, h), shape.head_dim, shape.scale);
    sum.clear();
    float most = 0.0f, total = 0.0f;
    for (std::int64_t s = 0; s <= t; ++s) {
      other.read(lanes, in.key.row(b, s, kv), shape.head_dim);
      float const score = q.dot(lanes, other);
      float const largest = s == 0 || score > most ? score : most;
      float const correction = s == 0 ? 0.0f : fast_exp(most - largest), p = fast_exp(score - largest);
      most = largest;
      total = total * correction + p;
      other.read(lanes, in.value.row(b, s, kv), shape.head_dim);
      sum.scale(correction);
      sum.add(other, p * in.factor(head, t, s));
    }
    sum.write(lanes, out.row(b, t, h), shape.head_dim, 1.0f / total);
    if (lanes.rank() == 0) lse[row] = most + Kokkos::log(total);
  }
};

/// dq of one (b, h, t) per row.
template <class T>
struct AttentionRowQueryBackward {
  AttentionRowsBackward<T> rule;
  HeadRows<T> dquery;

  template <class Lanes>
  KOKKOS_FUNCTION void operator()(Lanes const& lanes, std::int64_t row) const {
    AttentionRows<T> const& in = rule.in;
    AttentionShape const& shape = in.shape;
    std::int64_t const head = row / shape.sequence, t = row % shape.sequence, b = head / shape.heads;
    int const h = static_cast<int>(head % shape.heads), kv = h / in.group();
    LaneRow<Lanes> q, d, k, v, sum;
    q.read(lanes, in.query.row(b, t, h), shape.head_dim, shape.scale);
    d.read(lanes, rule.dout.row(b, t, h), shape.head_dim);
    k.read(lanes, rule.out.row(b, t, h), shape.head_dim);
    float const delta = d.dot(lanes, k);
    sum.clear();
    for (std::int64_t s = 0; s <= t; ++s) {
      k.read(lanes, in.key.row(b, s, kv), shape.head_dim);
      v.read(lanes, in.value.row(b, s, kv), shape.head_dim);
      sum.add(k, rule.pair(lanes, head, t, s, q, k, d, v, delta).ds);
    }
    sum.write(lanes, dquery.row(b, t, h), shape.head_dim, shape.scale);
  }
};

/// dk and dv of one (b, kv head, s) per row: over the query heads in order, then over the positions in order.
template <class T>
struct AttentionRowKeyBackward {
  AttentionRowsBackward<T> rule;
  HeadRows<T> dkey, dvalue;

  template <class Lanes>
  KOKKOS_FUNCTION void operator()(Lanes const& lanes, std::int64_t row) const {
    AttentionRows<T> const& in = rule.in;
    AttentionShape const& shape = in.shape;
    std::int64_t const s = row % shape.sequence, b = row / shape.sequence / shape.kv_heads;
    int const kv = static_cast<int>(row / shape.sequence % shape.kv_heads);
    LaneRow<Lanes> k, v, q, d, o, dk, dv;
    k.read(lanes, in.key.row(b, s, kv), shape.head_dim);
    v.read(lanes, in.value.row(b, s, kv), shape.head_dim);
    dk.clear();
    dv.clear();
    for (int h = kv * in.group(); h < (kv + 1) * in.group(); ++h) {
      for (std::int64_t t = s; t < shape.sequence; ++t) {
        q.read(lanes, in.query.row(b, t, h), shape.head_dim, shape.scale);
        d.read(lanes, rule.dout.row(b, t, h), shape.head_dim);
        o.read(lanes, rule.out.row(b, t, h), shape.head_dim);
        auto const pair = rule.pair(lanes, b * shape.heads + h, t, s, q, k, d, v, d.dot(lanes, o));
        dk.add(q, pair.ds);
        dv.add(d, pair.p_dropped);
      }
    }
    dk.write(lanes, dkey.row(b, s, kv), shape.head_dim, 1.0f);
    dv.write(lanes, dvalue.row(b, s, kv), shape.head_dim, 1.0f);
  }
};

template <class T>
void attention_rows_forward(Queue& q, AttentionRows<T> const& in, HeadRows<T> const& out, float* lse) {
  parallel_rows(q, "tessera::kernels::attention", in.shape.batch * in.shape.heads * in.shape.sequence,
                AttentionRowForward<T>{in, out, lse});
}
template <class T>
void attention_rows_backward(Queue& q, AttentionRowsBackward<T> const& rule, HeadRows<T> const& dquery, HeadRows<T> const& dkey,
                             HeadRows<T> const& dvalue) {
  AttentionShape const& shape = rule.in.shape;
  parallel_rows(q, "tessera::kernels::attention_backward_queries", shape.batch * shape.heads * shape.sequence,
                AttentionRowQueryBackward<T>{rule, dquery});
  parallel_rows(q, "tessera::kernels::attention_backward_keys", shape.batch * shape.kv_heads * shape.sequence,
                AttentionRowKeyBackward<T>{rule, dkey, dvalue});
}

}  // namespace tessera::kernels::detail
