// cuBLASLt, by the "cuBLAS" manual, section 3 "Using the cuBLASLt API".
#include "detail/gemm_cublaslt.hpp"

#ifdef TESSERA_HAVE_CUDA
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>

#include "detail/cublaslt_library.hpp"
#include "tessera/core/error.hpp"
#include "tessera/kernels/device_settings.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::kernels::detail {
namespace {

/// What NVIDIA recommends for Hopper (manual, 2.4.8 cublasSetWorkspace): enough for split-K of any shape.
constexpr std::size_t workspace_bytes = std::size_t{32} << 20;

CublasLt const& lt() { return CublasLt::of_process(); }

std::string text_of(GemmProblem const& p) {
  return concat("matrix product [", p.m, ", ", p.n, "] ", name_of(p.out), " of depth ", p.k, " in ", name_of(p.in), p.transpose_a ? ", a^T" : "",
                p.transpose_b ? ", b^T" : "", p.bias ? ", bias" : "", p.accumulate ? ", accumulating" : "");
}

void check(cublasStatus_t status, char const* call, GemmProblem const& p) {
  TESSERA_VALIDATE(status == CUBLAS_STATUS_SUCCESS, InternalError, "cuBLASLt: ", call, " for the ", text_of(p), ": ",
                   lt().cublasLtGetStatusString(status));
}
#define TESSERA_CUBLASLT_CALL(problem, call) check(call, #call, problem)

/// Section 3.3, cudaDataType_t.
cudaDataType_t type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp16: return CUDA_R_16F;
    case Dtype::bf16: return CUDA_R_16BF;
    default: return CUDA_R_32F;
  }
}

/// Largest power of two up to 256 that divides the address: an algorithm may need aligned operands.
std::uint32_t alignment_of(void const* data) {
  auto const address = reinterpret_cast<std::uintptr_t>(data);
  return address == 0 ? 256u : static_cast<std::uint32_t>(std::min<std::uintptr_t>(256, address & (~address + 1)));
}

template <class Handle>
using Owner = std::unique_ptr<std::remove_pointer_t<Handle>, cublasStatus_t (*)(Handle)>;
using Descriptor = Owner<cublasLtMatmulDesc_t>;
using Layout = Owner<cublasLtMatrixLayout_t>;
using Preference = Owner<cublasLtMatmulPreference_t>;

/// Section 3.4, cublasLtMatrixLayoutCreate: column-major. A row-major [rows, columns] matrix is the column-major [columns, rows] one.
Layout layout_of(GemmProblem const& p, Dtype dtype, std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayout_t out = nullptr;
  TESSERA_CUBLASLT_CALL(p, lt().cublasLtMatrixLayoutCreate(&out, type_of(dtype), static_cast<std::uint64_t>(columns),
                                                      static_cast<std::uint64_t>(rows), columns));
  return {out, lt().cublasLtMatrixLayoutDestroy};
}

/// The product in column-major terms: c^T = op(b)^T op(a)^T, so b is the left operand and the bias runs along the rows.
struct Plan {
  Descriptor product{nullptr, lt().cublasLtMatmulDescDestroy};
  Layout left{nullptr, lt().cublasLtMatrixLayoutDestroy}, right{nullptr, lt().cublasLtMatrixLayoutDestroy}, out{nullptr, lt().cublasLtMatrixLayoutDestroy};
  cublasLtMatmulAlgo_t algorithm{};
};

template <class Value>
void set(GemmProblem const& p, Plan const& plan, cublasLtMatmulDescAttributes_t attribute, Value const& value) {
  TESSERA_CUBLASLT_CALL(p, lt().cublasLtMatmulDescSetAttribute(plan.product.get(), attribute, &value, sizeof value));
}

void choose_algorithm(cublasLtHandle_t handle, GemmProblem const& p, Plan& plan) {
  cublasLtMatmulPreference_t raw = nullptr;
  TESSERA_CUBLASLT_CALL(p, lt().cublasLtMatmulPreferenceCreate(&raw));
  Preference const preference(raw, lt().cublasLtMatmulPreferenceDestroy);
  auto const prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto const& value) {
    TESSERA_CUBLASLT_CALL(p, lt().cublasLtMatmulPreferenceSetAttribute(raw, attribute, &value, sizeof value));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_bytes});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.b));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.c));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.c));
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  auto const status = lt().cublasLtMatmulAlgoGetHeuristic(handle, plan.product.get(), plan.left.get(), plan.right.get(), plan.out.get(),
                                                     plan.out.get(), raw, 1, &best, &found);
  TESSERA_VALIDATE(status == CUBLAS_STATUS_SUCCESS && found > 0, InternalError, "cuBLASLt has no algorithm for the ", text_of(p), ": ",
                   lt().cublasLtGetStatusString(status));
  plan.algorithm = best.algo;
}

Plan make_plan(cublasLtHandle_t handle, GemmProblem const& p) {
  Plan plan;
  cublasLtMatmulDesc_t raw = nullptr;
  bool const tf32 = p.in == Dtype::fp32 && device_settings().tf32;
  TESSERA_CUBLASLT_CALL(p, lt().cublasLtMatmulDescCreate(&raw, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  plan.product.reset(raw);
  set(p, plan, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(p, plan, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.bias) {
    set(p, plan, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(p, plan, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.in));
    set(p, plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  }
  plan.left = p.transpose_b ? layout_of(p, p.in, p.n, p.k) : layout_of(p, p.in, p.k, p.n);
  plan.right = p.transpose_a ? layout_of(p, p.in, p.k, p.m) : layout_of(p, p.in, p.m, p.k);
  plan.out = layout_of(p, p.out, p.m, p.n);
  choose_algorithm(handle, p, plan);
  return plan;
}

/// What the choice of an algorithm depends on.
using Key = std::array<std::int64_t, 12>;
Key key_of(GemmProblem const& p) {
  return {p.m, p.n, p.k, p.transpose_a, p.transpose_b, p.accumulate, static_cast<int>(p.in), static_cast<int>(p.out), p.bias != nullptr,
          alignment_of(p.a), alignment_of(p.b), alignment_of(p.c)};
}

class Products {
 public:
  /// Lives until the process ends: the driver may be gone before static objects are destroyed.
  static Products& of_process() {
    static Products& products = *new Products;
    return products;
  }

  void run(GemmProblem const& p, void* stream) {
    std::lock_guard const lock(mutex_);
    auto found = plans_.find(key_of(p));
    if (found == plans_.end()) found = plans_.emplace(key_of(p), make_plan(handle(p), p)).first;
    Plan const& plan = found->second;
    if (p.bias) set(p, plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    float const alpha = p.alpha, beta = p.accumulate ? 1.0f : 0.0f;
    TESSERA_CUBLASLT_CALL(p, lt().cublasLtMatmul(handle(p), plan.product.get(), &alpha, p.b, plan.left.get(), p.a, plan.right.get(), &beta, p.c,
                                            plan.out.get(), p.c, plan.out.get(), &plan.algorithm, workspace(stream), workspace_bytes,
                                            static_cast<cudaStream_t>(stream)));
  }

 private:
  cublasLtHandle_t handle(GemmProblem const& p) {
    if (!handle_) TESSERA_CUBLASLT_CALL(p, lt().cublasLtCreate(&handle_));
    return handle_;
  }
  void* workspace(void* stream) {
    auto& buffer = workspaces_[stream];
    if (!buffer.data()) buffer = memory::Buffer("matrix product", memory::Purpose::workspace, workspace_bytes, memory::Tier::device);
    return buffer.data();
  }

  std::mutex mutex_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, Plan> plans_;
  std::map<void*, memory::Buffer> workspaces_;
};

}  // namespace

void cublaslt_product(GemmProblem const& p, void* stream) {
  if (p.m == 0 || p.n == 0) return;
  TESSERA_VALIDATE(p.k > 0, InternalError, "the ", text_of(p), " on a device: the depth must be positive");
  TESSERA_VALIDATE(!p.bias || p.in == p.out, InternalError, "the ", text_of(p), " on a device: a bias needs a result of its own dtype");
  Products::of_process().run(p, stream);
}

std::string cublaslt_description() {
  auto const version = lt().cublasLtGetVersion();
  return concat("cuBLASLt ", version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace tessera::kernels::detail
#endif
