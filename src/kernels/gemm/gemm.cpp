#include "tessera/kernels/gemm/gemm.hpp"

#include <algorithm>
#include <mutex>

#include "gemm/gemm_epilogue.hpp"
#include "gemm/gemm_libraries.hpp"
#include "gemm/gemm_routes.hpp"
#include "launch/timed.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/launch_record.hpp"
#include "tessera/memory/work_trace.hpp"

namespace tessera::kernels {
namespace {

using detail::GemmActivation;
using detail::GemmProblem;

std::string shape_of(ConstTensorView const& x) {
  std::string out = "[";
  for (int i = 0; i < x.rank(); ++i) out += concat(i ? ", " : "", x.dim(i));
  return concat(out, "] ", name_of(x.dtype()));
}

bool is_float(Dtype d) { return d == Dtype::fp32 || d == Dtype::fp16 || d == Dtype::bf16; }

bool is_fp8(Gemm const& how, ConstTensorView const& a, ConstTensorView const& b) {
  return a.dtype() == Dtype::uint8 && b.dtype() == Dtype::uint8 && !how.fp8_a.scale.empty() &&
         !how.fp8_b.scale.empty() && !how.transpose_a && how.transpose_b &&
         (how.fp8_a.format == Float8::e4m3 || how.fp8_b.format == Float8::e4m3);
}

/// Both activations apply to x and read or write a second [m, n] matrix of c's dtype.
template <class What>
void set_epilogue(GemmProblem& p, GemmEpilogue const& then, What const& what) {
  p.bias = then.bias.empty() ? nullptr : then.bias.data();
  bool const gelu = !then.gelu_input.empty(), slope = !then.gelu_slope_at.empty();
  if (!gelu && !slope) return;
  ConstTensorView const input = gelu ? then.gelu_input : then.gelu_slope_at;
  TESSERA_VALIDATE(
      !(gelu && slope) && !p.accumulate && p.ldc() == p.n, InternalError, what(),
      ": gelu_new and its gradient exclude each other, accumulation and gaps in the result");
  TESSERA_VALIDATE(input.numel() == p.m * p.n && input.dtype() == p.out && input.data() != p.c,
                   InternalError, what(), ": the input of gelu_new is ", shape_of(input),
                   "; it must be a matrix of its own with the result's shape and dtype");
  p.activation = gelu ? GemmActivation::gelu : GemmActivation::gelu_slope;
  p.gelu_input = const_cast<void*>(input.data());
}

GemmProblem make_problem(Gemm const& how, TensorView c, ConstTensorView a, ConstTensorView b,
                         GemmEpilogue const& then) {
  ConstTensorView const& bias = then.bias;
  auto const what = [&] {
    return concat("matrix product ", shape_of(c), " = ", shape_of(a), how.transpose_a ? "^T" : "",
                  " x ", shape_of(b), how.transpose_b ? "^T" : "",
                  bias.empty() ? "" : " + " + shape_of(bias));
  };
  TESSERA_VALIDATE(a.rank() == 2 && b.rank() == 2 && c.rank() == 2, InternalError, what(),
                   ": each needs two dimensions");
  bool const fp8 = is_fp8(how, a, b);
  Dtype const in = fp8 ? Dtype::bf16 : a.dtype();
  bool const bias_fits = bias.empty() || bias.dtype() == in || (!fp8 && bias.dtype() == c.dtype());
  TESSERA_VALIDATE(
      (fp8 || (is_float(in) && in == b.dtype())) && bias_fits &&
          (c.dtype() == in || c.dtype() == Dtype::fp32),
      InternalError, what(),
      ": operands need one of fp32, fp16, bf16 in common, the result that or fp32; fp8 ones need "
      "scales, and one of them e4m3");
  GemmProblem p;
  p.m = c.dim(0);
  p.n = c.dim(1);
  p.k = how.transpose_a ? a.dim(0) : a.dim(1);
  bool const fits = a.dim(how.transpose_a ? 1 : 0) == p.m &&
                    b.dim(how.transpose_b ? 1 : 0) == p.k &&
                    b.dim(how.transpose_b ? 0 : 1) == p.n && (bias.empty() || bias.numel() == p.n);
  TESSERA_VALIDATE(fits, InternalError, what(), ": the dimensions do not fit");
  p.transpose_a = how.transpose_a;
  p.transpose_b = how.transpose_b;
  p.accumulate = how.accumulate;
  p.alpha = how.alpha;
  p.row_a = how.row_a;
  p.row_b = how.row_b;
  p.row_c = how.row_c;
  TESSERA_VALIDATE(p.lda() >= a.dim(1) && p.ldb() >= b.dim(1) && p.ldc() >= p.n, InternalError,
                   what(), ": rows that begin ", p.lda(), ", ", p.ldb(), " and ", p.ldc(),
                   " elements apart are longer than that");
  p.in = in;
  p.out = c.dtype();
  p.has_fp32_bias = !bias.empty() && bias.dtype() != in;
  p.c = c.data();
  p.a = a.data();
  p.b = b.data();
  if (fp8) {
    p.format_a = how.fp8_a.format;
    p.format_b = how.fp8_b.format;
    p.scale_a = how.fp8_a.scale.as<float>();
    p.scale_b = how.fp8_b.scale.as<float>();
  }
  set_epilogue(p, then, what);
  return p;
}

/// Serializes the products of the process: each uses all threads, and they share workspaces and
/// primitives.
class HostProducts {
 public:
  static HostProducts& of_process() {
    memory::MemoryTracker::of_process();  // made first, so that it outlives the workspaces
    static HostProducts products;
    return products;
  }
  void run(GemmProblem const& p) {
    std::lock_guard lock(mutex_);
    engine_.run(p);
  }

 private:
  std::mutex mutex_;
  detail::GemmEngine engine_;
};

thread_local ProductPlanning* planning = nullptr;

}  // namespace

ProductPlanning::ProductPlanning(int threads) : outer_(planning), threads_(threads) {
  planning = this;
}
ProductPlanning::~ProductPlanning() { planning = outer_; }

void gemm(Queue& q, Gemm const& how, TensorView c, ConstTensorView a, ConstTensorView b,
          GemmEpilogue const& then) {
  GemmProblem const p = make_problem(how, c, a, b, then);
  if (planning && q.kind() != memory::QueueKind::stream)
    planning->workspace_bytes_ =
        std::max(planning->workspace_bytes_, detail::panel_bytes(p, planning->threads_));
  if (auto* const trace = memory::WorkTrace::active())
    return trace->add(q, {.kind = memory::PlannedWork::Kind::product,
                          .dtype = p.in,
                          .m = p.m,
                          .n = p.n,
                          .k = p.k,
                          .flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) *
                                   static_cast<double>(p.k)});
  memory::note_operands(q, "tessera::kernels::gemm", a, b, c, how.accumulate ? c : TensorView{});
  if (memory::on_gpu(q)) {
    detail::Timed const timed(q, "tessera::kernels::gemm");
    return detail::cublaslt_product(q, p);
  }
  GemmProblem const product = detail::without_activation(p);
  if (q.kind() == memory::QueueKind::inline_host) {
    detail::Timed const timed(q, "tessera::kernels::gemm");
    HostProducts::of_process().run(product);
  } else if (!memory::leave_out<HostProducts>(q, product)) {
    q.submit([product] { HostProducts::of_process().run(product); });
  }
  detail::apply_activation(q, p);
}

}  // namespace tessera::kernels
