// A stand-in for cuBLASLt with the functions that Tessera calls, by the manual's section 3 and the
// comments of cublasLt.h.
#include "fake_cublaslt.hpp"

#include <cublasLt.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "tessera/core/dtype.hpp"
#include "tessera/core/float8.hpp"
#include "tessera/memory/queue.hpp"

namespace tessera::test {
namespace {

FakeCublasLt state;
std::mutex mutex;

/// Every rule that a caller can break ends here.
cublasStatus_t broken(std::string const& rule,
                      cublasStatus_t status = CUBLAS_STATUS_INVALID_VALUE) {
  if (state.complaint.empty()) state.complaint = rule;
  return status;
}

struct Descriptor {
  std::int32_t compute, scale, transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::int32_t bias_type = -1, aux_type = -1;
  void const* bias = nullptr;
  void* aux = nullptr;
  std::int64_t aux_ld = 0;
  float const *scale_a = nullptr, *scale_b = nullptr;
  std::int32_t multiprocessors = 0;
};
struct Layout {
  cudaDataType_t type;
  std::int64_t rows, columns, ld;
  bool operator==(Layout const&) const = default;
};
struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment[4] = {256, 256, 256, 256};  // alignments of A, B, C, D
};

/// A product as the heuristic and the execution see it: column-major, D[m, n] = op(A)[m, k]
/// op(B)[k, n].
struct Problem {
  Descriptor how;
  Layout a, b, c, d;
  std::int64_t m() const { return d.rows; }
  std::int64_t n() const { return d.columns; }
  std::int64_t k() const { return how.transpose_a == CUBLAS_OP_N ? a.columns : a.rows; }
};

/// An algorithm: what it was chosen for, and what it relies on.
struct Algorithm {
  Problem problem;
  std::uint32_t reduction = 0;
  std::uint64_t workspace = 0;
  std::uint32_t alignment[4] = {}, bias_alignment = 1, aux_alignment = 1;
  bool fit = true;
};
std::vector<Algorithm>& algorithms() {
  static std::vector<Algorithm> all;
  return all;
}
std::set<void const*>& objects() {
  static std::set<void const*> all;
  return all;
}

template <class T, class Opaque, class... Values>
cublasStatus_t create(Opaque** out, std::atomic<int>& count, Values... values) {
  std::lock_guard const lock(mutex);
  T* const made = new T{values...};
  objects().insert(made);
  ++count;
  *out = reinterpret_cast<Opaque*>(made);
  return CUBLAS_STATUS_SUCCESS;
}
template <class T>
cublasStatus_t destroy(void* object, std::atomic<int>& count) {
  std::lock_guard const lock(mutex);
  if (objects().erase(object) != 1) return broken("something is destroyed that is not there");
  delete static_cast<T*>(object);
  --count;
  return CUBLAS_STATUS_SUCCESS;
}
template <class T>
T const& at(void const* object) {
  return *static_cast<T const*>(object);
}

template <class T>
cublasStatus_t assign(T& to, void const* from, std::size_t bytes) {
  if (bytes != sizeof(T))
    return broken("an attribute of " + std::to_string(sizeof(T)) + " bytes is given " +
                  std::to_string(bytes));
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

bool is_fp8(std::int32_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
template <class F8>
double load_fp8(void const* data, std::int64_t i) {
  F8 x;
  x.bits = static_cast<std::uint8_t const*>(data)[i];
  return static_cast<float>(x);
}
double load(void const* data, std::int32_t type, std::int64_t i) {
  if (type == CUDA_R_8F_E4M3) return load_fp8<float8_e4m3>(data, i);
  if (type == CUDA_R_8F_E5M2) return load_fp8<float8_e5m2>(data, i);
  if (type == CUDA_R_16F) return static_cast<float>(static_cast<float16 const*>(data)[i]);
  if (type == CUDA_R_16BF) return static_cast<float>(static_cast<bfloat16 const*>(data)[i]);
  return static_cast<float const*>(data)[i];
}
void store(void* data, std::int32_t type, std::int64_t i, double value) {
  auto const rounded = static_cast<float>(value);
  if (type == CUDA_R_16F)
    static_cast<float16*>(data)[i] = float16(rounded);
  else if (type == CUDA_R_16BF)
    static_cast<bfloat16*>(data)[i] = bfloat16(rounded);
  else
    static_cast<float*>(data)[i] = rounded;
}
/// TF32 keeps 10 bits of the fraction.
double to_tf32(double value) {
  int exponent = 0;
  double const fraction = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 11)), exponent - 11);
}

/// The form with tanh; its derivative by the chain rule.
constexpr double root_two_over_pi = 0.79788456080286535588;
double gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(root_two_over_pi * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  double const t = std::tanh(root_two_over_pi * (x + 0.044715 * x * x * x));
  return 0.5 * (1.0 + t) +
         0.5 * x * (1.0 - t * t) * root_two_over_pi * (1.0 + 3.0 * 0.044715 * x * x);
}

bool has_bias(std::uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
bool has_aux(std::uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
         epilogue == CUBLASLT_EPILOGUE_DGELU;
}
bool known(std::uint32_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_DEFAULT || has_bias(epilogue) || has_aux(epilogue);
}

/// Names the rule that a problem with operands in fp8 breaks: cublasLtMatmul() in the manual, "FP8
/// kernels".
char const* broken_fp8_rule(Problem const& p) {
  if (!is_fp8(p.b.type)) return "only one operand is fp8";
  if (p.a.type == CUDA_R_8F_E5M2 && p.b.type == CUDA_R_8F_E5M2) return "A and B are both e5m2";
  if (p.how.transpose_a != CUBLAS_OP_T || p.how.transpose_b != CUBLAS_OP_N)
    return "A is not transposed or B is";
  if (p.a.ld % 16 != 0 || p.b.ld % 16 != 0 || p.k() % 16 != 0 || p.m() % 16 != 0)
    return "dimensions are no multiples of 16 bytes";
  if (p.d.type != CUDA_R_16BF && p.d.type != CUDA_R_32F) return "D is neither bf16 nor fp32";
  if (!p.how.scale_a || !p.how.scale_b) return "an operand has no scale";
  return nullptr;
}

/// Null, or the rule of the manual that the problem breaks.
char const* broken_rule(Problem const& p) {
  auto const& how = p.how;
  bool const plain_a = how.transpose_a == CUBLAS_OP_N, plain_b = how.transpose_b == CUBLAS_OP_N;
  if ((plain_a ? p.a.rows : p.a.columns) != p.m()) return "op(A) does not have the rows of D";
  if ((plain_b ? p.b.columns : p.b.rows) != p.n()) return "op(B) does not have the columns of D";
  if ((plain_b ? p.b.rows : p.b.columns) != p.k()) return "op(A) and op(B) differ in depth";
  if (!(p.c == p.d)) return "C and D differ";
  if (is_fp8(p.a.type)) {
    if (char const* rule = broken_fp8_rule(p)) return rule;
  } else {
    if (p.a.type != p.b.type) return "A and B differ in type";
    if (p.d.type != p.a.type && p.d.type != CUDA_R_32F) return "D is neither of A's type nor fp32";
    if (how.scale_a || how.scale_b) return "operands that are not fp8 have scales";
  }
  if (how.scale != CUDA_R_32F) return "alpha and beta are not fp32";
  if (how.compute != CUBLAS_COMPUTE_32F &&
      !(how.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && p.a.type == CUDA_R_32F))
    return "the compute type does not go with the operands";
  if (!known(how.epilogue)) return "this epilogue is not in the fake";
  if (has_bias(how.epilogue) && !how.bias) return "an epilogue with bias has no bias";
  if (has_bias(how.epilogue) && how.bias_type != -1 && how.bias_type != static_cast<int>(p.d.type))
    return "the bias is not of D's type";
  if (has_aux(how.epilogue) && !how.aux)
    return "an epilogue with GELU's input has no auxiliary matrix";
  if (has_aux(how.epilogue) && (how.aux_ld % 8 != 0 || how.aux_ld < p.m()))
    return "the auxiliary leading dimension is no multiple of 8, or too small";
  if (has_aux(how.epilogue) && how.aux_type != -1 && how.aux_type != static_cast<int>(p.d.type))
    return "the auxiliary matrix is not of D's type";
  return nullptr;
}

std::uint32_t alignment_of(void const* data) {
  auto const address = reinterpret_cast<std::uintptr_t>(data);
  std::uint32_t out = 256;
  while (address % out != 0) out /= 2;
  return out;
}

/// Null, or what is different from the problem that the algorithm was chosen for.
char const* unlike(Algorithm const& chosen, Problem const& p) {
  auto const &x = chosen.problem.how, &y = p.how;
  if (x.compute != y.compute || x.transpose_a != y.transpose_a || x.transpose_b != y.transpose_b ||
      x.epilogue != y.epilogue)
    return "the algorithm was chosen for another operation";
  if (!(chosen.problem.a == p.a && chosen.problem.b == p.b && chosen.problem.d == p.d))
    return "the algorithm was chosen for other matrices";
  if (has_bias(y.epilogue) && alignment_of(y.bias) < chosen.bias_alignment)
    return "the algorithm was chosen for a better aligned bias";
  if (has_aux(y.epilogue) && alignment_of(y.aux) < chosen.aux_alignment)
    return "the algorithm was chosen for a better aligned auxiliary matrix";
  return nullptr;
}

struct Execution {
  Problem p;
  std::uint32_t reduction;
  float alpha, beta;
  void const *a, *b, *c;
  void* d;

  double factor_a(std::int64_t i, std::int64_t l) const {
    double const v =
        load(a, p.a.type, p.how.transpose_a == CUBLAS_OP_N ? i + l * p.a.ld : l + i * p.a.ld);
    return p.how.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? to_tf32(v) : v;
  }
  double factor_b(std::int64_t l, std::int64_t j) const {
    double const v =
        load(b, p.b.type, p.how.transpose_b == CUBLAS_OP_N ? l + j * p.b.ld : j + l * p.b.ld);
    return p.how.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? to_tf32(v) : v;
  }
  /// The sum in two halves, which meet in the output's type under the schemes that hold parts in
  /// it.
  double sum(std::int64_t i, std::int64_t j) const {
    double parts[2] = {0.0, 0.0};
    for (std::int64_t l = 0; l < p.k(); ++l)
      parts[2 * l >= p.k()] += factor_a(i, l) * factor_b(l, j);
    if (reduction & (CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE))
      for (double& part : parts) {
        float rounded = 0.0f;
        store(&rounded, p.d.type, 0, part);
        part = load(&rounded, p.d.type, 0);
      }
    return parts[0] + parts[1];
  }
  void run() const {
    auto const& how = p.how;
    for (std::int64_t j = 0; j < p.n(); ++j)
      for (std::int64_t i = 0; i < p.m(); ++i) {
        double x = alpha * sum(i, j);
        if (how.scale_a) x *= static_cast<double>(*how.scale_a) * *how.scale_b;
        if (beta != 0.0f) x += beta * load(c, p.c.type, i + j * p.c.ld);
        if (has_bias(how.epilogue)) x += load(how.bias, p.d.type, i);
        if (how.epilogue == CUBLASLT_EPILOGUE_DGELU) {
          x *= gelu_slope(load(how.aux, p.d.type, i + j * how.aux_ld));
        } else if (has_aux(how.epilogue)) {
          store(how.aux, p.d.type, i + j * how.aux_ld, x);
          x = gelu(x);
        }
        store(d, p.d.type, i + j * p.d.ld, x);
      }
  }
};

Problem problem_of(void const* how, void const* a, void const* b, void const* c, void const* d) {
  return {at<Descriptor>(how), at<Layout>(a), at<Layout>(b), at<Layout>(c), at<Layout>(d)};
}

/// Fastest first, as the manual orders them: splits of the sum before complete sums, of the schemes
/// that are allowed.
std::vector<Algorithm> candidates_of(Problem const& p, Preference const& wanted) {
  std::vector<Algorithm> out;
  Algorithm one{p};
  std::memcpy(one.alignment, wanted.alignment, sizeof one.alignment);
  one.bias_alignment = alignment_of(p.how.bias);
  one.aux_alignment = alignment_of(p.how.aux);
  one.fit = false;
  for (int i = 0; i < state.unfit_candidates; ++i) out.push_back(one);
  one.fit = !state.all_unfit;
  for (std::uint32_t scheme :
       {CUBLASLT_REDUCTION_SCHEME_INPLACE, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE,
        CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_NONE}) {
    if ((wanted.reductions & scheme) != scheme) continue;
    one.reduction = scheme;
    one.workspace = scheme == CUBLASLT_REDUCTION_SCHEME_NONE
                        ? 0
                        : static_cast<std::uint64_t>(2 * p.m() * p.n()) * sizeof(float);
    if (one.workspace <= wanted.workspace) out.push_back(one);
  }
  return out;
}

}  // namespace
}  // namespace tessera::test

using namespace tessera::test;

extern "C" {

FakeCublasLt* tessera_fake_cublaslt() { return &state; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return create<int>(handle, state.handles, 0);
}
char const* cublasLtGetStatusString(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_ALLOC_FAILED) return "no memory";
  return status == CUBLAS_STATUS_NOT_SUPPORTED   ? "not supported"
         : status == CUBLAS_STATUS_INVALID_VALUE ? "an invalid value"
                                                 : "another status";
}
size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  return create<Descriptor>(out, state.descriptors, static_cast<std::int32_t>(compute),
                            static_cast<std::int32_t>(scale));
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t object) {
  return destroy<Descriptor>(object, state.descriptors);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t object,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              void const* from, size_t bytes) {
  auto& d = *reinterpret_cast<Descriptor*>(object);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return assign(d.transpose_a, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return assign(d.transpose_b, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return assign(d.epilogue, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return assign(d.bias, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return assign(d.bias_type, from, bytes);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return assign(d.multiprocessors, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return assign(d.aux, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return assign(d.aux_ld, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      return assign(d.aux_type, from, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return assign(d.scale_a, from, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return assign(d.scale_b, from, bytes);
    default:
      return broken("this attribute of a product is not in the fake");
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
  if (rows == 0 || columns == 0 || ld < static_cast<std::int64_t>(rows))
    return broken("a layout is empty, or its leading dimension below its rows");
  return create<Layout>(out, state.layouts, type, static_cast<std::int64_t>(rows),
                        static_cast<std::int64_t>(columns), ld);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t object) {
  return destroy<Layout>(object, state.layouts);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  return create<Preference>(out, state.preferences);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t object) {
  return destroy<Preference>(object, state.preferences);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t object,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    void const* from, size_t bytes) {
  auto& p = *reinterpret_cast<Preference*>(object);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return assign(p.workspace, from, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return assign(p.reductions, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return assign(p.alignment[0], from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return assign(p.alignment[1], from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return assign(p.alignment[2], from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return assign(p.alignment[3], from, bytes);
    default:
      return broken("this preference is not in the fake");
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t how,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  std::lock_guard const lock(mutex);
  ++state.heuristics;
  *found = 0;
  if (!objects().contains(handle))
    return broken("the heuristic is asked without a handle", CUBLAS_STATUS_NOT_INITIALIZED);
  Problem const p = problem_of(how, a, b, c, d);
  if (char const* rule = broken_rule(p)) return broken(rule);
  if (state.refused_epilogues.contains(p.how.epilogue)) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (auto const& one : candidates_of(p, at<Preference>(preference))) {
    if (*found == most) break;
    auto& result = results[(*found)++];
    result = {};
    result.algo.data[0] = algorithms().size();
    result.workspaceSize = one.workspace;
    result.state = CUBLAS_STATUS_SUCCESS;
    algorithms().push_back(one);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t how,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       cublasLtMatmulAlgo_t const* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  std::lock_guard const lock(mutex);
  auto const& chosen = algorithms().at(algorithm->data[0]);
  if (char const* rule = unlike(chosen, problem_of(how, a, b, c, d))) return broken(rule);
  result->workspaceSize = chosen.workspace;
  return chosen.fit ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t how, void const* alpha,
                              void const* a, cublasLtMatrixLayout_t a_layout, void const* b,
                              cublasLtMatrixLayout_t b_layout, void const* beta, void const* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              cublasLtMatmulAlgo_t const* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  std::lock_guard const lock(mutex);
  if (!objects().contains(handle))
    return broken("a product without a handle", CUBLAS_STATUS_NOT_INITIALIZED);
  Problem const p = problem_of(how, a_layout, b_layout, c_layout, d_layout);
  if (char const* rule = broken_rule(p)) return broken(rule);
  auto const& chosen = algorithms().at(algorithm->data[0]);
  if (char const* rule = unlike(chosen, p)) return broken(rule);
  if (!chosen.fit)
    return broken("an algorithm that this device does not accept", CUBLAS_STATUS_ARCH_MISMATCH);
  if (chosen.workspace > workspace_bytes || alignment_of(workspace) < 256)
    return broken("the workspace is too small, or not aligned to 256 bytes");
  void const* const operands[4] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    if (alignment_of(operands[i]) < chosen.alignment[i])
      return broken("the algorithm was chosen for better aligned operands");
  if (d == a || d == b || c != d) return broken("D shares memory with A or B, or C is not D");
  if (state.next_status != 0)
    return static_cast<cublasStatus_t>(std::exchange(state.next_status, 0));
  ++state.products;
  state.epilogue = p.how.epilogue;
  state.reduction = chosen.reduction;
  state.compute = static_cast<std::uint32_t>(p.how.compute);
  state.multiprocessors = p.how.multiprocessors;
  Execution const execution{p,
                            chosen.reduction,
                            *static_cast<float const*>(alpha),
                            *static_cast<float const*>(beta),
                            a,
                            b,
                            c,
                            d};
  reinterpret_cast<tessera::memory::Queue*>(stream)->submit([execution] { execution.run(); });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
