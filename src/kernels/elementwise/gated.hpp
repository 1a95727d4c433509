#pragma once
/// Gated activations: rows on the host, packs of neighboring elements on a device.

#include "launch/launch.hpp"
#include "launch/pack.hpp"

namespace tessera::kernels::detail {

/// Row r is at base + r * row_stride.
template <class T>
struct MatrixRows {
  T* base = nullptr;
  std::int64_t row_stride = 0;
  KOKKOS_FUNCTION T* row(std::int64_t r) const { return base + r * row_stride; }
};

/// out = f(gate) * up
template <class F, class T>
struct Gated {
  MatrixRows<T> out;
  MatrixRows<T const> gate, up;
  std::int64_t width;

  KOKKOS_FUNCTION void operator()(SingleThread, std::int64_t row) const {
    T* const y = out.row(row);
    T const *const g = gate.row(row), *const u = up.row(row);
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) store(y[c], F::value(load(g[c])) * load(u[c]));
  }
  template <int N>
  KOKKOS_FUNCTION void pack(std::int64_t row, std::int64_t column) const {
    RowPack<T, N> g, u, y;
    g.read(gate.row(row) + column);
    u.read(up.row(row) + column);
    TESSERA_UNROLL
    for (int i = 0; i < N; ++i) y.set(i, F::value(g.get(i)) * u.get(i));
    y.write(out.row(row) + column);
  }
};

/// dgate = dout * up * f'(gate);  dup = dout * f(gate)
template <class F, class T>
struct GatedBackward {
  MatrixRows<T> dgate, dup;
  MatrixRows<T const> dout, gate, up;
  std::int64_t width;

  KOKKOS_FUNCTION void operator()(SingleThread, std::int64_t row) const {
    T *const dg = dgate.row(row), *const du = dup.row(row);
    T const *const dy = dout.row(row), *const g = gate.row(row), *const u = up.row(row);
#pragma omp simd
    for (std::int64_t c = 0; c < width; ++c) {
      float const d = load(dy[c]), x = load(g[c]), y = load(u[c]);
      store(dg[c], d * y * F::slope(x));
      store(du[c], d * F::value(x));
    }
  }
  template <int N>
  KOKKOS_FUNCTION void pack(std::int64_t row, std::int64_t column) const {
    RowPack<T, N> d, g, u, to_gate, to_up;
    d.read(dout.row(row) + column);
    g.read(gate.row(row) + column);
    u.read(up.row(row) + column);
    TESSERA_UNROLL
    for (int i = 0; i < N; ++i) {
      to_gate.set(i, d.get(i) * u.get(i) * F::slope(g.get(i)));
      to_up.set(i, d.get(i) * F::value(g.get(i)));
    }
    to_gate.write(dgate.row(row) + column);
    to_up.write(dup.row(row) + column);
  }
};

/// A pack of N elements per index.
template <class Rule, int N>
struct CallWithPack {
  Rule rule;
  std::int64_t packs;  ///< per row
  KOKKOS_FUNCTION void operator()(std::int64_t index) const {
    rule.template pack<N>(index / packs, index % packs * N);
  }
};

}  // namespace tessera::kernels::detail
