#include "gemm/gemm_libraries.hpp"

#ifdef TESSERA_HAVE_ONEDNN
#include <algorithm>
#include <array>
#include <cstddef>
#include <dnnl.hpp>
#include <map>
#include <tuple>

#include "tessera/core/error.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::kernels::detail {
namespace {

/// The bits of dnnl::cpu_isa are cumulative: an instruction set is there when all its bits are. On
/// Arm the same bits mean SVE.
bool isa_includes([[maybe_unused]] dnnl::cpu_isa wanted) {
#if defined(__x86_64__)
  auto const have = static_cast<unsigned>(dnnl::get_effective_cpu_isa()),
             need = static_cast<unsigned>(wanted);
  return (have & need) == need;
#else
  return false;
#endif
}

std::string describe(Sgemm const& s) {
  return concat("[", s.m, ", ", s.k, "]", s.transpose_a ? "^T" : "", " x [", s.k, ", ", s.n, "]",
                s.transpose_b ? "^T" : "");
}

/// Products of operands with gaps between rows whose result is bf16 sum in fp32 copies of c. Above
/// this size the product runs by rows of c, as the head's weight gradient: two copies of it would
/// be as large as its master weights.
constexpr std::size_t largest_scratchpad = std::size_t{8} << 20;

/// Rows [first, first + rows) of c.
GemmProblem rows_of(GemmProblem const& p, std::int64_t first, std::int64_t rows) {
  GemmProblem part = p;
  part.row_a = p.lda();
  part.row_b = p.ldb();
  part.row_c = p.ldc();
  part.m = rows;
  auto const skip = static_cast<std::size_t>(first * (p.transpose_a ? 1 : p.lda()));
  part.a = static_cast<std::byte const*>(p.a) + skip * size_of(p.in);
  part.c =
      static_cast<std::byte*>(p.c) + static_cast<std::size_t>(first * p.ldc()) * size_of(p.out);
  return part;
}

dnnl::memory::data_type onednn_type_of(Dtype dtype) {
  return dtype == Dtype::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

}  // namespace

std::string onednn_description() {
  auto const* v = dnnl::version();
  char const* isa = isa_includes(dnnl::cpu_isa::avx512_core) ? "AVX-512"
                    : isa_includes(dnnl::cpu_isa::avx2)      ? "AVX2"
                                                             : "generic";
  return concat("oneDNN ", v->major, ".", v->minor, ".", v->patch, " (", isa, ")");
}

bool onednn_has_avx512() { return isa_includes(dnnl::cpu_isa::avx512_core); }
bool onednn_has_bf16() { return isa_includes(dnnl::cpu_isa::avx512_core_bf16); }

bool onednn_bf16_is_faster_than_fp32() {
  if (isa_includes(dnnl::cpu_isa::avx512_core_amx)) return true;
#if defined(__x86_64__) && defined(__GNUC__)
  __builtin_cpu_init();
  return onednn_has_bf16() && (__builtin_cpu_is("amd") || __builtin_cpu_is("cooperlake"));
#else
  return false;
#endif
}

void onednn_sgemm(Sgemm const& s) {
  dnnl_status_t const status =
      dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m, s.n, s.k, s.alpha, s.a,
                 s.lda, s.b, s.ldb, s.beta, s.c, s.ldc);
  TESSERA_VALIDATE(status != dnnl_out_of_memory, OutOfMemoryError,
                   "oneDNN has no memory for the product ", describe(s),
                   "; use a smaller batch or more ranks");
  TESSERA_VALIDATE(status == dnnl_success, InternalError, "oneDNN refused the fp32 product ",
                   describe(s), " with status ", static_cast<int>(status));
}

struct OnednnMatmul::Impl {
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, bool, bool, bool, float, Dtype, Dtype, bool, bool>;
  /// The memory objects are part of the entry: per call only their pointers are set.
  struct Entry {
    dnnl::matmul primitive;
    dnnl::memory a, b, c, bias, scratchpad;
    std::size_t scratchpad_bytes = 0;
    std::int64_t rows = 0;  ///< rows of c in one call
  };

  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Key, Entry> entries;
  memory::Buffer scratchpad;

  static Key key_of(GemmProblem const& p) {
    return {
        p.m,           p.n,          p.k,     p.lda(), p.ldb(), p.ldc(),           p.transpose_a,
        p.transpose_b, p.accumulate, p.alpha, p.in,    p.out,   p.bias != nullptr, p.has_fp32_bias};
  }

  Entry make(GemmProblem const& p) const {
    using dnnl::memory;
    using dims = memory::dims;
    memory::desc const a({p.m, p.k}, onednn_type_of(p.in),
                         p.transpose_a ? dims{1, p.lda()} : dims{p.lda(), 1});
    memory::desc const b({p.k, p.n}, onednn_type_of(p.in),
                         p.transpose_b ? dims{1, p.ldb()} : dims{p.ldb(), 1});
    memory::desc const c({p.m, p.n}, onednn_type_of(p.out), dims{p.ldc(), 1});
    memory::desc const bias({1, p.n}, onednn_type_of(p.bias_dtype()), dims{p.n, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (p.alpha != 1.0f) attributes.set_output_scales(0, {p.alpha});
    if (p.accumulate) {
      dnnl::post_ops add_old;
      add_old.append_sum(1.0f);
      attributes.set_post_ops(add_old);
    }
    auto const desc = p.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
    dnnl::matmul::primitive_desc const pd(desc, attributes, engine);
    Entry e;
    e.primitive = dnnl::matmul(pd);
    e.a = memory(a, engine, DNNL_MEMORY_NONE);
    e.b = memory(b, engine, DNNL_MEMORY_NONE);
    e.c = memory(c, engine, DNNL_MEMORY_NONE);
    if (p.bias) e.bias = memory(bias, engine, DNNL_MEMORY_NONE);
    e.scratchpad = memory(pd.scratchpad_desc(), engine, DNNL_MEMORY_NONE);
    e.scratchpad_bytes = pd.scratchpad_desc().get_size();
    e.rows = p.m;
    if (e.scratchpad_bytes > largest_scratchpad) {
      constexpr std::int64_t unit = 64;
      auto const parts = static_cast<std::int64_t>(e.scratchpad_bytes / largest_scratchpad) + 1;
      e.rows = std::max(unit, p.m / parts / unit * unit);
    }
    return e;
  }

  Entry& entry_of(GemmProblem const& p) {
    auto const key = key_of(p);
    auto found = entries.find(key);
    if (found == entries.end()) found = entries.emplace(key, make(p)).first;
    return found->second;
  }

  void reserve(std::size_t bytes) {
    if (bytes <= scratchpad.bytes()) return;
    scratchpad = memory::Buffer();
    scratchpad = memory::Buffer("matrix product scratchpad", memory::Purpose::workspace, bytes);
  }

  void run(GemmProblem const& p, Entry& e) {
    reserve(e.scratchpad_bytes);
    e.a.set_data_handle(const_cast<void*>(p.a));
    e.b.set_data_handle(const_cast<void*>(p.b));
    e.c.set_data_handle(p.c);
    if (p.bias) e.bias.set_data_handle(const_cast<void*>(p.bias));
    e.scratchpad.set_data_handle(scratchpad.data());
    // the C call takes a plain array; the C++ one builds a hash map each time
    std::array<dnnl_exec_arg_t, 5> const arguments{
        {{DNNL_ARG_SRC, e.a.get()},
         {DNNL_ARG_WEIGHTS, e.b.get()},
         {DNNL_ARG_DST, e.c.get()},
         {DNNL_ARG_SCRATCHPAD, e.scratchpad.get()},
         {DNNL_ARG_BIAS, p.bias ? e.bias.get() : nullptr}}};
    dnnl_status_t const status =
        dnnl_primitive_execute(e.primitive.get(), stream.get(), p.bias ? 5 : 4, arguments.data());
    TESSERA_VALIDATE(status == dnnl_success, InternalError, "status ", static_cast<int>(status));
    stream.wait();
  }
};

OnednnMatmul::OnednnMatmul() : impl_(std::make_unique<Impl>()) {}
OnednnMatmul::~OnednnMatmul() = default;

void OnednnMatmul::run(GemmProblem const& p) try {
  auto& e = impl_->entry_of(p);
  if (e.rows == p.m) return impl_->run(p, e);
  for (std::int64_t first = 0; first < p.m; first += e.rows) {
    auto const part = rows_of(p, first, std::min(e.rows, p.m - first));
    impl_->run(part, impl_->entry_of(part));
  }
} catch (dnnl::error const& e) {
  throw InternalError(concat("oneDNN failed on the bf16 product [", p.m, ", ", p.k, "] x [", p.k,
                             ", ", p.n, "]: ", e.what()));
}

}  // namespace tessera::kernels::detail
#endif
