#pragma once
/// The libraries of matrix products behind plain functions, each compiled where the build has it.

#include <memory>
#include <string>

#include "gemm/gemm_problem.hpp"
#include "tessera/memory/queue.hpp"

namespace tessera::kernels::detail {

/// "OpenBLAS 0.3.21 (Haswell)" or "CBLAS"
std::string blas_description();
/// Whether this library is the faster one where oneDNN lacks AVX-512: an OpenBLAS that knows the
/// processor's vector unit (AVX2, NEON) and shares our OpenMP threads (its own pool would fight
/// with ours for the cores).
bool blas_suits_vectors(int threads);
/// How many threads the following products use; where the library has no such call, its own
/// environment variable decides.
void blas_set_threads(int threads);
void blas_sgemm(Sgemm const& s);

/// "oneDNN 2.6.3 (AVX-512)"
std::string onednn_description();
/// Whether oneDNN has AVX-512 kernels for this processor; with less, OpenBLAS is the faster one
/// (docs/reference/performance.md).
bool onednn_has_avx512();
/// Whether the processor multiplies bf16 without emulation.
bool onednn_has_bf16();
/// Whether it does so faster than fp32: with AMX, or where VDPBF16PS runs at twice the rate of fp32
/// FMA (AMD, Cooper Lake). Later Intel cores run it at half of fp32's rate when AMX is absent or
/// switched off (docs/reference/performance.md).
bool onednn_bf16_is_faster_than_fp32();

void onednn_sgemm(Sgemm const& s);

/// bf16 x bf16 -> bf16 or fp32 by oneDNN's matmul primitive. Primitives are kept by shape, so that
/// a call that has been seen before costs a look-up; the scratchpad is one named buffer of the
/// memory tracker that grows to the largest need, at most some megabytes: products that need more
/// run by rows of the result.
class OnednnMatmul {
 public:
  OnednnMatmul();
  ~OnednnMatmul();
  OnednnMatmul(OnednnMatmul const&) = delete;
  OnednnMatmul& operator=(OnednnMatmul const&) = delete;
  /// @pre p.is_native_bf16(), on a processor with onednn_has_bf16()
  void run(GemmProblem const& p);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Enqueues the product on the stream. The first product of a shape asks cuBLASLt for an algorithm;
/// later ones reuse it. The first product on a stream allocates that stream's workspace. A product
/// that cuBLASLt cannot compute in one call runs in steps: bias, product, activation. Needs Ampere
/// or later.
/// @throws InternalError in builds without GPU support
void cublaslt_product(memory::Queue& q, GemmProblem const& p);

/// "cuBLASLt 13.1.0".
std::string cublaslt_description();

}  // namespace tessera::kernels::detail
