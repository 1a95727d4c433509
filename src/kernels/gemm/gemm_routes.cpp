#include "gemm/gemm_routes.hpp"

#include <omp.h>

#include <algorithm>
#include <exception>
#include <mutex>

#include "gemm/gemm_libraries.hpp"
#include "gemm/gemm_rules.hpp"
#include "launch/amx.hpp"
#include "launch/launch.hpp"
#include "launch/timed.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/runtime.hpp"

namespace tessera::kernels::detail {
namespace {

/// Largest panels of the panel route: the fp32 copies of op(a) [rows, depth] and op(b) [depth,
/// columns] of a thread stay in its L2 cache. An element is converted once per 512
/// operations or more.
constexpr std::int64_t panel_rows = 256, panel_columns = 384, panel_depth = 768;
/// Rows of a sum in fp32 that is rounded when it is complete: 3 MiB, which stay in caches, where
/// all rows of a large vocabulary would be in memory.
constexpr std::int64_t sum_rows = 2048;

struct Range {
  std::int64_t begin, size;
};

/// Inside a parallel region both libraries use only the calling thread: oneDNN always, CBLAS after
/// set_library_threads(1).
void sgemm([[maybe_unused]] Sgemm const& s, [[maybe_unused]] SgemmLibrary library) {
#ifdef TESSERA_HAVE_ONEDNN
  if (library == SgemmLibrary::onednn) return onednn_sgemm(s);
#endif
#ifdef TESSERA_HAVE_CBLAS
  if (library == SgemmLibrary::cblas) return blas_sgemm(s);
#endif
  throw InternalError("this build lacks the matrix library that was asked for");
}
void set_library_threads([[maybe_unused]] SgemmLibrary library, [[maybe_unused]] int threads) {
#ifdef TESSERA_HAVE_CBLAS
  if (library == SgemmLibrary::cblas) blas_set_threads(threads);
#endif
}

/// Part @p i of @p parts nearly equal ones of @p range; their borders are multiples of @p unit, the
/// end excepted.
Range part_of(Range range, std::int64_t i, std::int64_t parts, std::int64_t unit) {
  std::int64_t const units = ceil_divide(range.size, unit);
  std::int64_t const begin = std::min(range.size, units * i / parts * unit),
                     end = std::min(range.size, units * (i + 1) / parts * unit);
  return {range.begin + begin, end - begin};
}
std::int64_t chunks_of(std::int64_t size, std::int64_t largest) {
  return ceil_divide(size, largest);
}

/// How the threads share c: rows x columns of them, such that a thread's part is nearly square.
struct Grid {
  std::int64_t rows, columns;
};
Grid grid_of(std::int64_t m, std::int64_t n, std::int64_t threads) {
  Grid best{1, threads};
  double least = -1.0;
  for (std::int64_t rows = 1; rows <= threads; ++rows) {
    if (threads % rows != 0) continue;
    Grid const grid{rows, threads / rows};
    double const edge = static_cast<double>(m) / static_cast<double>(rows) +
                        static_cast<double>(n) / static_cast<double>(grid.columns);
    if (least < 0.0 || edge < least) best = grid, least = edge;
  }
  return best;
}

/// The first error of a parallel region, which no exception may leave.
class FirstError {
 public:
  void keep(std::exception_ptr error) {
    std::lock_guard const lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

/// A thread's fp32 copies.
struct Panels {
  float *a, *b, *c;
};

/// An operand that is converted to panels.
struct Operand {
  void const* data;
  bool transposed;
  std::int64_t ld;
  Dtype dtype;
  bool fp8;
  Float8 format;
};
/// Calls @p f with the Tag of its elements.
template <class F>
void with_elements(Operand const& of, F&& f) {
  if (!of.fp8) return with_type(of.dtype, "gemm", f);
  if (of.format == Float8::e4m3) return f(Tag<float8_e4m3>{});
  f(Tag<float8_e5m2>{});
}

/// The share of one thread in a product whose bias and 16-bit result have type T. Sums run in fp32,
/// one chunk of depth after the other: their order depends on k only. c is summed in place when it
/// is fp32, else in a panel that is rounded once.
template <class T>
struct PanelProduct {
  GemmProblem p;
  SgemmLibrary library;
  Grid grid;
  float* workspace;
  std::int64_t per_thread;  ///< floats of the workspace
  FirstError* error;

  static std::int64_t panel_c(GemmProblem const& p, Grid grid) {
    if (p.out == Dtype::fp32) return 0;
    return std::min(sum_rows, p.m / grid.rows + 2 * unit) * panel_columns;
  }
  static std::int64_t floats_per_thread(GemmProblem const& p, Grid grid) {
    return (panel_rows + panel_columns) * panel_depth + panel_c(p, grid);
  }

  void operator()(std::int64_t thread) const try {
    Range const rows = part_of({0, p.m}, thread / grid.columns, grid.rows, unit);
    Range const columns = part_of({0, p.n}, thread % grid.columns, grid.columns, unit);
    if (rows.size == 0 || columns.size == 0) return;
    float* const a = workspace + thread * per_thread;
    float* const b = a + panel_rows * panel_depth;
    Panels const panels{a, b, b + panel_columns * panel_depth};
    std::int64_t const strips = chunks_of(columns.size, panel_columns),
                       sums = p.out == Dtype::fp32 ? 1 : chunks_of(rows.size, sum_rows);
    for (std::int64_t j = 0; j < strips; ++j)
      for (std::int64_t i = 0; i < sums; ++i)
        strip(panels, part_of(rows, i, sums, unit), part_of(columns, j, strips, unit));
  } catch (...) {
    error->keep(std::current_exception());
  }

 private:
  static constexpr std::int64_t unit = 16;

  Operand operand_a() const { return {p.a, p.transpose_a, p.lda(), p.in, p.is_fp8(), p.format_a}; }
  Operand operand_b() const { return {p.b, p.transpose_b, p.ldb(), p.in, p.is_fp8(), p.format_b}; }

  void strip(Panels const& panels, Range rows, Range columns) const {
    bool const in_place = p.out == Dtype::fp32;
    std::int64_t const ld = in_place ? p.ldc() : columns.size, depths = chunks_of(p.k, panel_depth),
                       heights = chunks_of(rows.size, panel_rows);
    for (std::int64_t l = 0; l < depths; ++l) {
      Range const depth = part_of({0, p.k}, l, depths, unit);
      to_panel(panels.b, operand_b(), depth, columns);
      for (std::int64_t i = 0; i < heights; ++i) {
        Range const height = part_of(rows, i, heights, unit);
        to_panel(panels.a, operand_a(), height, depth);
        float* const sum = in_place ? static_cast<float*>(p.c) + height.begin * ld + columns.begin
                                    : panels.c + (height.begin - rows.begin) * columns.size;
        bool const add = l > 0 || (in_place && (p.accumulate || p.bias));
        sgemm({height.size, columns.size, depth.size, p.transpose_a, p.transpose_b, p.alpha,
               add ? 1.0f : 0.0f, panels.a, p.transpose_a ? height.size : depth.size, panels.b,
               p.transpose_b ? depth.size : columns.size, sum, ld},
              library);
      }
    }
    if (in_place) return;
    FromPanel<T> const store{static_cast<T*>(p.c) + rows.begin * p.ldc() + columns.begin,
                             panels.c,
                             p.bias ? static_cast<T const*>(p.bias) + columns.begin : nullptr,
                             columns.size,
                             p.ldc(),
                             p.accumulate};
    for (std::int64_t r = 0; r < rows.size; ++r) store(r);
  }

  /// The fp32 copy of rows x columns of op(x); it keeps x's own orientation.
  static void to_panel(float* panel, Operand const& x, Range rows, Range columns) {
    if (x.transposed) std::swap(rows, columns);
    with_elements(x, [&](auto tag) {
      using In = typename decltype(tag)::type;
      ToPanel<In> const rule{panel,
                             static_cast<In const*>(x.data) + rows.begin * x.ld + columns.begin,
                             columns.size, x.ld};
      for (std::int64_t r = 0; r < rows.size; ++r) rule(r);
    });
  }
};

/// See onednn_bf16_is_faster_than_fp32().
bool native_bf16_is_faster_than_fp32() {
#if defined(TESSERA_HAVE_ONEDNN)
  return onednn_bf16_is_faster_than_fp32();
#elif defined(TESSERA_PLANS_FOR_ONEDNN) && defined(__x86_64__) && defined(__GNUC__)
  __builtin_cpu_init();
  return has_amx_bf16() || (__builtin_cpu_supports("avx512bf16") &&
                            (__builtin_cpu_is("amd") || __builtin_cpu_is("cooperlake")));
#else
  return false;
#endif
}

}  // namespace

bool has_library([[maybe_unused]] SgemmLibrary library) {
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
  return !onednn_has_avx512() && blas_suits_vectors(threads) ? SgemmLibrary::cblas
                                                             : SgemmLibrary::onednn;
#elif defined(TESSERA_HAVE_ONEDNN)
  return SgemmLibrary::onednn;
#else
  return SgemmLibrary::cblas;
#endif
}

GemmRoute choose_route(GemmProblem const& p) {
  if (p.in == Dtype::fp32) return GemmRoute::direct;
  static bool const native_is_faster = native_bf16_is_faster_than_fp32();
  return native_is_faster && p.is_native_bf16() ? GemmRoute::native : GemmRoute::panels;
}

std::size_t panel_bytes(GemmProblem const& p, int threads) {
  if (p.m == 0 || p.n == 0 || p.k == 0 || choose_route(p) != GemmRoute::panels) return 0;
  return static_cast<std::size_t>(
             threads * PanelProduct<float>::floats_per_thread(p, grid_of(p.m, p.n, threads))) *
         sizeof(float);
}

/// The way of a product in the words of used_routes().
char const* name_of(GemmProblem const& p, GemmRoute route, SgemmLibrary library) {
  bool const onednn = library == SgemmLibrary::onednn;
  if (p.is_fp8()) return onednn ? "fp8 through oneDNN fp32" : "fp8 through BLAS fp32";
  switch (route) {
    case GemmRoute::direct:
      return onednn ? "oneDNN fp32" : "BLAS fp32";
    case GemmRoute::panels:
      return onednn ? "16 bits through oneDNN fp32" : "16 bits through BLAS fp32";
    case GemmRoute::native:
      return "oneDNN bf16";
  }
  return "";
}

struct GemmEngine::Impl {
  memory::Buffer workspace;
#ifdef TESSERA_HAVE_ONEDNN
  OnednnMatmul matmul;
#endif
  SgemmLibrary const library = choose_library(memory::Runtime::threads());

  float* reserve(std::int64_t numel) {
    auto const bytes = static_cast<std::size_t>(numel) * sizeof(float);
    if (workspace.bytes() < bytes) {
      workspace = memory::Buffer();
      workspace = memory::Buffer("matrix product panels", memory::Purpose::workspace, bytes);
    }
    return static_cast<float*>(workspace.data());
  }

  /// The bias of a product of @p T whose result is fp32.
  template <class T>
  static void begin_fp32_with_bias(GemmProblem const& p) {
    p.has_fp32_bias ? begin_with_bias<float, float>(p) : begin_with_bias<float, T>(p);
  }
  template <class TC, class T>
  static void begin_with_bias(GemmProblem const& p) {
    BeginWithBias<TC, T> const rule{static_cast<TC*>(p.c), static_cast<T const*>(p.bias), p.n,
                                    p.ldc(), p.accumulate};
    launch_range(HostSpace(), "tessera::kernels::gemm_bias", p.m,
                 CallWithRow<BeginWithBias<TC, T>>{rule});
  }

  void direct(GemmProblem const& p, SgemmLibrary with) {
    set_library_threads(with, omp_get_max_threads());
    if (p.bias) begin_with_bias<float, float>(p);
    sgemm({p.m, p.n, p.k, p.transpose_a, p.transpose_b, p.alpha,
           p.accumulate || p.bias ? 1.0f : 0.0f, static_cast<float const*>(p.a), p.lda(),
           static_cast<float const*>(p.b), p.ldb(), static_cast<float*>(p.c), p.ldc()},
          with);
  }

  template <class T>
  void panels(GemmProblem p, SgemmLibrary with) {
    if (p.is_fp8()) p.alpha *= *p.scale_a * *p.scale_b;
    if (p.out == Dtype::fp32 && p.bias) begin_fp32_with_bias<T>(p);
    std::int64_t const threads = omp_get_max_threads();
    Grid const grid = grid_of(p.m, p.n, threads);
    std::int64_t const each = PanelProduct<T>::floats_per_thread(p, grid);
    FirstError error;
    PanelProduct<T> const product{p, with, grid, reserve(each * threads), each, &error};
    set_library_threads(with, 1);
    launch_range(HostSpace(), "tessera::kernels::gemm_panels", threads, product);
    error.rethrow();
  }

  /// k = 0: the sum is empty.
  void without_terms(GemmProblem const& p) {
    with_type(p.in, "gemm", [&](auto tag) {
      using T = typename decltype(tag)::type;
      p.out == Dtype::fp32 ? begin_fp32_with_bias<T>(p) : begin_with_bias<T, T>(p);
    });
  }
};

GemmEngine::GemmEngine() : impl_(std::make_unique<Impl>()) {}
GemmEngine::~GemmEngine() = default;

void GemmEngine::run(GemmProblem const& p) { run(p, choose_route(p), impl_->library); }

void GemmEngine::run(GemmProblem const& p, GemmRoute route, SgemmLibrary library) {
  // a worker queue's thread starts with OpenMP's default team, not with the runtime's
  if (omp_get_max_threads() != memory::Runtime::threads())
    omp_set_num_threads(memory::Runtime::threads());
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) return impl_->without_terms(p);
  note_route("products", name_of(p, route, library));
  if (route == GemmRoute::direct) return impl_->direct(p, library);
#ifdef TESSERA_HAVE_ONEDNN
  if (route == GemmRoute::native) return impl_->matmul.run(p);
#endif
  with_type(p.in, "gemm",
            [&](auto tag) { impl_->panels<typename decltype(tag)::type>(p, library); });
}

}  // namespace tessera::kernels::detail
