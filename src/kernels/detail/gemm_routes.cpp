#include "detail/gemm_routes.hpp"

#include <omp.h>

#include <algorithm>

#include "detail/gemm_cblas.hpp"
#include "detail/gemm_onednn.hpp"
#include "detail/gemm_rules.hpp"
#include "detail/launch.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/runtime.hpp"

namespace tessera::kernels::detail {
namespace {

/// Largest blocks of the panel route: the fp32 copies of op(a) [rows, depth] and op(b) [depth, columns] stay in the caches, and an
/// element is converted once per 2048 operations or more.
constexpr std::int64_t panel_rows = 2048, panel_columns = 1024, panel_depth = 1024;

struct Block {
  std::int64_t begin, size;
};
Block block_at(std::int64_t begin, std::int64_t largest, std::int64_t end) { return {begin, std::min(largest, end - begin)}; }

void sgemm(Sgemm const& s, SgemmLibrary library) {
#ifdef TESSERA_HAVE_ONEDNN
  if (library == SgemmLibrary::onednn) return onednn_sgemm(s);
#endif
#ifdef TESSERA_HAVE_CBLAS
  if (library == SgemmLibrary::cblas) return blas_sgemm(s, omp_get_max_threads());
#endif
  throw InternalError("this build lacks the matrix library that was asked for");
}

}  // namespace

bool has_library(SgemmLibrary library) {
#ifdef TESSERA_HAVE_ONEDNN
  if (library == SgemmLibrary::onednn) return true;
#endif
#ifdef TESSERA_HAVE_CBLAS
  if (library == SgemmLibrary::cblas) return true;
#endif
  return false;
}

bool has_native_bf16() {
#ifdef TESSERA_HAVE_ONEDNN
  return onednn_has_bf16();
#else
  return false;
#endif
}

SgemmLibrary choose_library([[maybe_unused]] int threads) {
#if defined(TESSERA_HAVE_ONEDNN) && defined(TESSERA_HAVE_CBLAS)
  return !onednn_has_avx512() && blas_suits_avx2(threads) ? SgemmLibrary::cblas : SgemmLibrary::onednn;
#elif defined(TESSERA_HAVE_ONEDNN)
  return SgemmLibrary::onednn;
#else
  return SgemmLibrary::cblas;
#endif
}

GemmRoute choose_route(GemmProblem const& p) {
  if (p.in == Dtype::fp32) return GemmRoute::direct;
#ifdef TESSERA_HAVE_ONEDNN
  static bool const native_is_faster = onednn_bf16_is_faster_than_fp32();
  if (native_is_faster && OnednnMatmul::can_do(p)) return GemmRoute::native;
#endif
  return GemmRoute::panels;
}

struct GemmEngine::Impl {
  memory::Buffer a, b, c;
#ifdef TESSERA_HAVE_ONEDNN
  OnednnMatmul matmul;
#endif
  SgemmLibrary const library = choose_library(memory::Runtime::threads());

  static float* reserve(memory::Buffer& buffer, char const* name, std::int64_t numel) {
    auto const bytes = static_cast<std::size_t>(numel) * sizeof(float);
    if (buffer.bytes() < bytes) {
      buffer = memory::Buffer();
      buffer = memory::Buffer(name, memory::Purpose::workspace, bytes);
    }
    return static_cast<float*>(buffer.data());
  }

  /// The fp32 copy of rows x columns elements of op(x) at (row, column); the copy keeps x's own orientation.
  template <class T>
  static void to_panel(float* panel, void const* x, bool transposed, std::int64_t ld, Block rows, Block columns) {
    if (transposed) std::swap(rows, columns);
    ToPanel<T> const rule{panel, static_cast<T const*>(x) + rows.begin * ld + columns.begin, columns.size, ld};
    launch_range(HostSpace(), "tessera::kernels::gemm_to_panel", rows.size, rule);
  }

  template <class TC, class T>
  static void begin_with_bias(GemmProblem const& p) {
    BeginWithBias<TC, T> const rule{static_cast<TC*>(p.c), static_cast<T const*>(p.bias), p.n, p.accumulate};
    launch_range(HostSpace(), "tessera::kernels::gemm_bias", p.m, rule);
  }

  void direct(GemmProblem const& p, SgemmLibrary with) {
    if (p.bias) begin_with_bias<float, float>(p);
    sgemm({p.m, p.n, p.k, p.transpose_a, p.transpose_b, p.alpha, p.accumulate || p.bias ? 1.0f : 0.0f,
           static_cast<float const*>(p.a), p.transpose_a ? p.m : p.k, static_cast<float const*>(p.b), p.transpose_b ? p.k : p.n,
           static_cast<float*>(p.c), p.n},
          with);
  }

  /// One block of c: the sum over depth in fp32, in a panel or in c itself when c is fp32.
  template <class T>
  void block(GemmProblem const& p, Block rows, Block columns, float* sum, std::int64_t ld_sum, bool add_first, SgemmLibrary with) {
    for (std::int64_t at = 0; at < p.k; at += panel_depth) {
      Block const depth = block_at(at, panel_depth, p.k);
      float* const pa = static_cast<float*>(a.data());
      float* const pb = static_cast<float*>(b.data());
      to_panel<T>(pa, p.a, p.transpose_a, p.transpose_a ? p.m : p.k, rows, depth);
      to_panel<T>(pb, p.b, p.transpose_b, p.transpose_b ? p.k : p.n, depth, columns);
      sgemm({rows.size, columns.size, depth.size, p.transpose_a, p.transpose_b, p.alpha, add_first || at > 0 ? 1.0f : 0.0f, pa,
             p.transpose_a ? rows.size : depth.size, pb, p.transpose_b ? depth.size : columns.size, sum, ld_sum},
            with);
    }
  }

  template <class T>
  void panels(GemmProblem const& p, SgemmLibrary with) {
    bool const in_place = p.out == Dtype::fp32;
    std::int64_t const m = std::min(p.m, panel_rows), n = std::min(p.n, panel_columns), k = std::min(p.k, panel_depth);
    reserve(a, "matrix product panel a", m * k);
    reserve(b, "matrix product panel b", k * n);
    float* const pc = in_place ? nullptr : reserve(c, "matrix product panel c", m * n);
    if (in_place && p.bias) begin_with_bias<float, T>(p);
    for (std::int64_t j = 0; j < p.n; j += panel_columns) {
      for (std::int64_t i = 0; i < p.m; i += panel_rows) {
        Block const rows = block_at(i, panel_rows, p.m), columns = block_at(j, panel_columns, p.n);
        std::int64_t const at = i * p.n + j;
        if (in_place) {
          block<T>(p, rows, columns, static_cast<float*>(p.c) + at, p.n, p.accumulate || p.bias, with);
          continue;
        }
        block<T>(p, rows, columns, pc, columns.size, false, with);
        FromPanel<T> const rule{static_cast<T*>(p.c) + at, pc, p.bias ? static_cast<T const*>(p.bias) + j : nullptr,
                                columns.size, p.n, p.accumulate};
        launch_range(HostSpace(), "tessera::kernels::gemm_from_panel", rows.size, rule);
      }
    }
  }

  /// k = 0: the sum is empty.
  void without_terms(GemmProblem const& p) {
    with_type(p.in, "gemm", [&](auto tag) {
      using T = typename decltype(tag)::type;
      p.out == Dtype::fp32 ? begin_with_bias<float, T>(p) : begin_with_bias<T, T>(p);
    });
  }
};

GemmEngine::GemmEngine() : impl_(std::make_unique<Impl>()) {}
GemmEngine::~GemmEngine() = default;

void GemmEngine::run(GemmProblem const& p) { run(p, choose_route(p), impl_->library); }

void GemmEngine::run(GemmProblem const& p, GemmRoute route, SgemmLibrary library) {
  // a worker queue's thread starts with OpenMP's default team, not with the runtime's
  if (omp_get_max_threads() != memory::Runtime::threads()) omp_set_num_threads(memory::Runtime::threads());
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) return impl_->without_terms(p);
  if (route == GemmRoute::direct) return impl_->direct(p, library);
#ifdef TESSERA_HAVE_ONEDNN
  if (route == GemmRoute::native) return impl_->matmul.run(p);
#endif
  with_type(p.in, "gemm", [&](auto tag) { impl_->panels<typename decltype(tag)::type>(p, library); });
}

}  // namespace tessera::kernels::detail
