// cuBLASLt, by the "cuBLAS" manual, section 3 "Using the cuBLASLt API".
#include "gemm/gemm_libraries.hpp"

#include "tessera/core/error.hpp"

#ifdef TESSERA_HAVE_CUDA
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "gemm/cublaslt_library.hpp"
#include "gemm/gemm_epilogue.hpp"
#include "gemm/product_algorithms.hpp"
#include "launch/timed.hpp"
#include "tessera/kernels/launch/device_settings.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/launch_record.hpp"
#include "tessera/memory/runtime.hpp"

namespace tessera::kernels::detail {
namespace {

/// What NVIDIA recommends for Hopper (manual, 2.4.8 cublasSetWorkspace): enough for split-K of any
/// shape. Its contents mean nothing after the product, and the products of a stream run one after
/// the other: one kept buffer per stream is what an arena would hold at most, without its place
/// changing between steps (a captured graph keeps the address).
constexpr std::size_t workspace_bytes = std::size_t{32} << 20;
/// Candidates that are timed, with DeviceSettings::product_algorithms.
constexpr std::size_t measured_candidates = 5;

CublasLt const& lt() { return CublasLt::of_process(); }

std::string text_of(GemmProblem const& p) {
  return concat("matrix product [", p.m, ", ", p.n, "] ", name_of(p.out), " of depth ", p.k, " in ",
                p.is_fp8() ? concat(name_of(p.format_a), " and ", name_of(p.format_b))
                           : std::string(name_of(p.in)),
                p.transpose_a ? ", a^T" : "", p.transpose_b ? ", b^T" : "", p.bias ? ", bias" : "",
                p.activation == GemmActivation::gelu         ? ", gelu_new"
                : p.activation == GemmActivation::gelu_slope ? ", gradient of gelu_new"
                                                             : "",
                p.accumulate ? ", accumulating" : "");
}

/// @p call as written: "lt().cublasLtMatmul(...)".
void check(cublasStatus_t status, std::string_view call, GemmProblem const& p) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  call.remove_prefix(std::min(call.find("cublasLt"), call.size()));
  std::string const what = concat(call.substr(0, call.find('(')), " for the ", text_of(p), ": ",
                                  lt().cublasLtGetStatusString(status));
  TESSERA_VALIDATE(
      status != CUBLAS_STATUS_ALLOC_FAILED, OutOfMemoryError, what,
      "; cuBLASLt needs some memory in addition to Tessera's own: use a smaller batch, a "
      "higher ZeRO stage or more ranks");
  throw InternalError(what);
}
#define TESSERA_CUBLASLT_CALL(problem, call) check(call, #call, problem)

/// Section 3.3, cudaDataType_t.
cudaDataType_t type_of(Float8 format) {
  return format == Float8::e4m3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}
cudaDataType_t type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp16:
      return CUDA_R_16F;
    case Dtype::bf16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

cudaDataType_t type_of_a(GemmProblem const& p) {
  return p.is_fp8() ? type_of(p.format_a) : type_of(p.in);
}
cudaDataType_t type_of_b(GemmProblem const& p) {
  return p.is_fp8() ? type_of(p.format_b) : type_of(p.in);
}

template <class Handle>
using Owner = std::unique_ptr<std::remove_pointer_t<Handle>, cublasStatus_t (*)(Handle)>;
using Descriptor = Owner<cublasLtMatmulDesc_t>;
using Layout = Owner<cublasLtMatrixLayout_t>;
using Preference = Owner<cublasLtMatmulPreference_t>;

/// Section 3.4, cublasLtMatrixLayoutCreate: column-major. A row-major [rows, columns] matrix is the
/// column-major [columns, rows] one.
Layout layout_of(GemmProblem const& p, cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                 std::int64_t ld) {
  cublasLtMatrixLayout_t out = nullptr;
  TESSERA_CUBLASLT_CALL(
      p, lt().cublasLtMatrixLayoutCreate(&out, type, static_cast<std::uint64_t>(columns),
                                         static_cast<std::uint64_t>(rows), ld));
  return {out, lt().cublasLtMatrixLayoutDestroy};
}

/// The product in column-major terms: c^T = op(b)^T op(a)^T, so b is the left operand and the bias
/// runs along the rows.
struct Plan {
  Descriptor product{nullptr, lt().cublasLtMatmulDescDestroy};
  Layout left{nullptr, lt().cublasLtMatrixLayoutDestroy},
      right{nullptr, lt().cublasLtMatrixLayoutDestroy},
      out{nullptr, lt().cublasLtMatrixLayoutDestroy};
  /// Algorithms that the device accepts, the one that is expected to be the fastest first; one,
  /// where they are not measured. Empty: cuBLASLt has none.
  std::vector<cublasLtMatmulAlgo_t> candidates;
  cublasLtMatmulAlgo_t algorithm{};
  std::string refusal;
};

template <class Value>
void set(GemmProblem const& p, Plan const& plan, cublasLtMatmulDescAttributes_t attribute,
         Value const& value) {
  TESSERA_CUBLASLT_CALL(
      p, lt().cublasLtMatmulDescSetAttribute(plan.product.get(), attribute, &value, sizeof value));
}

/// The heuristic reads from these pointers how far they are aligned
/// (cublasLtMatmulDescAttributes_t). The scales of fp8 operands stay in device memory: the host
/// does not wait for them. CUBLASLT_MATMUL_DESC_FAST_ACCUM stays off, because sums are fp32.
void set_pointers(GemmProblem const& p, Plan const& plan) {
  if (p.bias) set(p, plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  if (p.gelu_input) set(p, plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.gelu_input);
  if (!p.is_fp8()) return;
  set(p, plan, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.scale_b);
  set(p, plan, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.scale_a);
}

/// Section 3.3, cublasLtEpilogue_t. The manual writes GELU(x) without a formula; it is the one with
/// tanh, as gelu_new (PyTorch takes it for gelu(approximate="tanh") only), which
/// tests/gpu/products.test.cpp asks a device. Bias gradients (BGRADA, BGRADB, DGELU_BGRAD) stay a
/// kernel of their own: these epilogues overwrite where micro-batches add, and their order of
/// summation is not documented.
cublasLtEpilogue_t epilogue_of(GemmProblem const& p) {
  switch (p.activation) {
    case GemmActivation::gelu:
      return p.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case GemmActivation::gelu_slope:
      return CUBLASLT_EPILOGUE_DGELU;
    case GemmActivation::none:
      break;
  }
  return p.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

/// How parts of a sum that were formed in parallel (split-K) may meet,
/// CUBLASLT_REDUCTION_SCHEME_*; not splitting is always allowed. COMPUTE_TYPE adds fp32 parts in a
/// step of its own. The others hold parts in the result's dtype, in 16 bits against the promise
/// that sums are fp32; INPLACE adds them one after the other, in an order that is not documented.
std::uint32_t reductions_of(GemmProblem const& p) {
  return p.out == Dtype::fp32 && !device_settings().deterministic
             ? CUBLASLT_REDUCTION_SCHEME_MASK
             : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

bool accepts(cublasLtHandle_t handle, Plan const& plan, cublasLtMatmulAlgo_t const& algorithm) {
  cublasLtMatmulHeuristicResult_t checked{};
  return lt().cublasLtMatmulAlgoCheck(handle, plan.product.get(), plan.left.get(), plan.right.get(),
                                      plan.out.get(), plan.out.get(), &algorithm,
                                      &checked) == CUBLAS_STATUS_SUCCESS &&
         checked.workspaceSize <= workspace_bytes;
}

/// The first of cuBLASLt's candidates that this device accepts: a function of the problem and the
/// device. With DeviceSettings::product_algorithms several, of which one is chosen later.
void choose_algorithm(cublasLtHandle_t handle, GemmProblem const& p, Plan& plan) {
  cublasLtMatmulPreference_t raw = nullptr;
  TESSERA_CUBLASLT_CALL(p, lt().cublasLtMatmulPreferenceCreate(&raw));
  Preference const preference(raw, lt().cublasLtMatmulPreferenceDestroy);
  auto const prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto const& value) {
    TESSERA_CUBLASLT_CALL(
        p, lt().cublasLtMatmulPreferenceSetAttribute(raw, attribute, &value, sizeof value));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_bytes});
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions_of(p));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.b));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.c));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.c));
  std::array<cublasLtMatmulHeuristicResult_t, 8> candidates{};
  int found = 0;
  auto const status = lt().cublasLtMatmulAlgoGetHeuristic(
      handle, plan.product.get(), plan.left.get(), plan.right.get(), plan.out.get(), plan.out.get(),
      raw, static_cast<int>(candidates.size()), candidates.data(), &found);
  plan.refusal = status != CUBLAS_STATUS_SUCCESS
                     ? lt().cublasLtGetStatusString(status)
                     : concat("none of ", found, " candidates runs on this device");
  std::size_t const wanted = device_settings().product_algorithms.empty() ? 1 : measured_candidates;
  for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < found; ++i) {
    auto const& candidate = candidates[static_cast<std::size_t>(i)];
    if (plan.candidates.size() < wanted && candidate.state == CUBLAS_STATUS_SUCCESS &&
        accepts(handle, plan, candidate.algo))
      plan.candidates.push_back(candidate.algo);
  }
  if (!plan.candidates.empty()) plan.algorithm = plan.candidates.front();
}

Plan make_plan(cublasLtHandle_t handle, GemmProblem const& p) {
  Plan plan;
  cublasLtMatmulDesc_t raw = nullptr;
  bool const tf32 = p.in == Dtype::fp32 && device_settings().tf32;
  TESSERA_CUBLASLT_CALL(
      p, lt().cublasLtMatmulDescCreate(
             &raw, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  plan.product.reset(raw);
  set(p, plan, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(p, plan, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(p, plan, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p));
  if (p.bias) set(p, plan, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.bias_dtype()));
  if (p.gelu_input) {
    set(p, plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, type_of(p.out));
    set(p, plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.n);
  }
  // the others are left to collectives; 3.3, cublasLtMatmulDescAttributes_t
  if (int const count = device_settings().product_multiprocessors; count > 0)
    set(p, plan, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, std::int32_t{count});
  set_pointers(p, plan);
  plan.left = p.transpose_b ? layout_of(p, type_of_b(p), p.n, p.k, p.ldb())
                            : layout_of(p, type_of_b(p), p.k, p.n, p.ldb());
  plan.right = p.transpose_a ? layout_of(p, type_of_a(p), p.k, p.m, p.lda())
                             : layout_of(p, type_of_a(p), p.m, p.k, p.lda());
  plan.out = layout_of(p, type_of(p.out), p.m, p.n, p.ldc());
  choose_algorithm(handle, p, plan);
  return plan;
}

/// Where gelu_new is computed on this device for p.
GeluKernel gelu_kernel_of(GemmProblem const& p) {
  auto const wanted = device_settings().gelu;
  if (wanted != DeviceGelu::automatic) return choose_gelu(wanted, p.out, GeluKernel::separate);
  static GeluKernel const faster =
      memory::Runtime::device() < 0
          ? GeluKernel::separate
          : faster_gelu(memory::describe_device(memory::Runtime::device()).major,
                        lt().cublasLtGetVersion());
  return choose_gelu(wanted, p.out, faster);
}

/// What the choice of an algorithm depends on.
using Key = std::array<std::int64_t, 23>;
Key key_of(GemmProblem const& p) {
  return {p.m,
          p.n,
          p.k,
          p.lda(),
          p.ldb(),
          p.ldc(),
          p.transpose_a,
          p.transpose_b,
          p.accumulate,
          static_cast<int>(p.in),
          type_of_a(p),
          type_of_b(p),
          static_cast<int>(p.out),
          static_cast<int>(p.activation),
          alignment_of(p.a),
          alignment_of(p.b),
          alignment_of(p.c),
          p.bias != nullptr,
          alignment_of(p.bias),
          alignment_of(p.gelu_input),
          device_settings().tf32,
          device_settings().deterministic,
          device_settings().product_multiprocessors};
}

class Products {
 public:
  /// Lives until the process ends: the driver may be gone before static objects are destroyed.
  static Products& of_process() {
    static Products& products = *new Products;
    return products;
  }

  /// One call of cuBLASLt; false, and nothing is done, when it has no algorithm. The call is a
  /// function of the problem, what the algorithm depends on, and the workspace.
  bool run(memory::Queue& q, GemmProblem const& p) {
    std::lock_guard const lock(mutex_);
    follow_settings();
    auto found = plans_.find(key_of(p));
    if (found == plans_.end()) {
      found = plans_.emplace(key_of(p), make_plan(handle(p), p)).first;
      choose_fastest(q, p, found->first, found->second);
    }
    Plan const& plan = found->second;
    if (plan.candidates.empty()) {
      refusal_ = plan.refusal;
      return false;
    }
    if (memory::leave_out<Products>(q, p, found->first, workspace(q.native_stream()))) return true;
    execute(q, p, plan);
    return true;
  }
  std::string refusal() const {
    std::lock_guard const lock(mutex_);
    return refusal_;
  }

 private:
  void execute(memory::Queue& q, GemmProblem const& p, Plan const& plan) {
    void* const stream = q.native_stream();
    set_pointers(p, plan);
    float const alpha = p.alpha, beta = p.accumulate ? 1.0f : 0.0f;
    TESSERA_CUBLASLT_CALL(
        p, lt().cublasLtMatmul(handle(p), plan.product.get(), &alpha, p.b, plan.left.get(), p.a,
                               plan.right.get(), &beta, p.c, plan.out.get(), p.c, plan.out.get(),
                               &plan.algorithm, workspace(stream), workspace_bytes,
                               static_cast<cudaStream_t>(stream)));
  }

  /// Another file: plans are made and measured again.
  void follow_settings() {
    auto const& file = device_settings().product_algorithms;
    if (file == algorithms_file_) return;
    algorithms_file_ = file;
    plans_.clear();
    measured_.reset();
    if (file.empty()) return;
    int const device = memory::Runtime::device();
    auto const info = device < 0 ? memory::DeviceInfo{} : memory::describe_device(device);
    measured_.emplace(file, concat(info.name, ", driver ", info.driver, ", cuBLASLt ",
                                   lt().cublasLtGetVersion()));
  }

  /// The algorithm of the file, or the fastest candidate. Each is run on the operands of the
  /// product, which computes its result again afterwards. A product that is captured first, which
  /// does not happen to those of blocks, keeps its first candidate.
  void choose_fastest(memory::Queue& q, GemmProblem const& p, Key const& key, Plan& plan) {
    if (!measured_ || plan.candidates.size() < 2 || memory::LaunchRecord::of(q)) return;
    if (auto const known = measured_->find(key)) {
      cublasLtMatmulAlgo_t stored{};
      std::memcpy(stored.data, known->data(), sizeof stored.data);
      if (accepts(handle(p), plan, stored)) {
        plan.algorithm = stored;
        return;
      }
    }
    try {
      GemmProblem timed = p;
      memory::Buffer result;  // one that is added to must be read once only
      if (p.accumulate) {
        result =
            memory::Buffer("result of a product that is timed", memory::Purpose::workspace,
                           static_cast<std::size_t>((p.m - 1) * p.ldc() + p.n) * size_of(p.out),
                           memory::MemorySpace::device);
        timed.c = result.data();
      }
      std::vector<double> seconds;
      for (auto const& candidate : plan.candidates) {
        plan.algorithm = candidate;
        seconds.push_back(seconds_of(q, timed, plan));
      }
      plan.algorithm = plan.candidates[fastest_of(seconds)];
    } catch (OutOfMemoryError const&) {
      plan.algorithm = plan.candidates.front();
      return;
    }
    AlgorithmWords words{};
    static_assert(sizeof words == sizeof plan.algorithm.data);
    std::memcpy(words.data(), plan.algorithm.data, sizeof words);
    measured_->add(key, words);
  }
  double seconds_of(memory::Queue& q, GemmProblem const& p, Plan const& plan) {
    constexpr int repetitions = 5;
    constexpr std::chrono::minutes deadline{10};
    execute(q, p, plan);
    q.record().wait("a matrix product that is timed", deadline);
    auto const start = std::chrono::steady_clock::now();
    for (int i = 0; i < repetitions; ++i) execute(q, p, plan);
    q.record().wait("matrix products that are timed", deadline);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
           repetitions;
  }

  cublasLtHandle_t handle(GemmProblem const& p) {
    if (handle_) return handle_;
    memory::trim_device_pool();  // the library allocates outside the pool
    TESSERA_CUBLASLT_CALL(p, lt().cublasLtCreate(&handle_));
    return handle_;
  }
  void* workspace(void* stream) {
    auto& buffer = workspaces_[stream];
    if (!buffer.data())
      buffer = memory::Buffer("matrix product", memory::Purpose::workspace, workspace_bytes,
                              memory::MemorySpace::device);
    return buffer.data();
  }

  mutable std::mutex mutex_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, Plan> plans_;
  std::map<void*, memory::Buffer> workspaces_;
  std::string refusal_;  ///< the latest
  std::string algorithms_file_;
  std::optional<ProductAlgorithms> measured_;  ///< none: no algorithm is measured
};

}  // namespace

void cublaslt_product(memory::Queue& q, GemmProblem const& p) {
  if (p.m == 0 || p.n == 0) return;
  if (auto const split = split_unaligned(p)) {
    cublaslt_product(q, split->rest);
    return cublaslt_product(q, split->aligned);
  }
  auto& products = Products::of_process();
  if (fits_one_call(p, gelu_kernel_of(p)) && products.run(q, p)) {
    if (p.activation != GemmActivation::none) note_route("gelu", "in the product");
    return note_route("products", p.is_fp8()                                      ? "cuBLASLt fp8"
                                  : p.in == Dtype::fp32 && device_settings().tf32 ? "cuBLASLt TF32"
                                                                                  : "cuBLASLt");
  }
  if (p.activation != GemmActivation::none) {
    note_route("gelu", "separate kernel");
    cublaslt_product(q, without_activation(p));
    return apply_activation(q, p);
  }
  TESSERA_VALIDATE(p.bias || p.k == 0, InternalError, "cuBLASLt has no algorithm for the ",
                   text_of(p), ": ", products.refusal());
  begin_with_bias(q, p);
  if (p.k == 0) return;
  GemmProblem rest = p;
  rest.bias = nullptr;
  rest.accumulate = true;
  cublaslt_product(q, rest);
}

std::string cublaslt_description() {
  auto const version = lt().cublasLtGetVersion();
  return concat("cuBLASLt ", version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace tessera::kernels::detail
#else

namespace tessera::kernels::detail {
void cublaslt_product(memory::Queue&, GemmProblem const&) {
  throw InternalError("a matrix product on a CUDA stream in a build without CUDA");
}
}  // namespace tessera::kernels::detail
#endif
