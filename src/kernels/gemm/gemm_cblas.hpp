#pragma once
/// Any CBLAS behind plain functions. Compiled when TESSERA_HAVE_CBLAS is defined.

#include <string>

#include "gemm/gemm_problem.hpp"

namespace tessera::kernels::detail {

/// "OpenBLAS 0.3.21 (Haswell)" or "CBLAS"
std::string blas_description();
/// Whether this library is the faster one where oneDNN has AVX2 only: an OpenBLAS that knows the
/// processor's vector unit and shares our OpenMP threads (its own pool would fight with ours for
/// the cores).
bool blas_suits_avx2(int threads);
/// How many threads the following products use; where the library has no such call, its own
/// environment variable decides.
void blas_set_threads(int threads);
void blas_sgemm(Sgemm const& s);

}  // namespace tessera::kernels::detail
