#pragma once
/// Matrix products on a CUDA stream through cuBLASLt.

#include <string>

#include "detail/gemm_problem.hpp"

namespace tessera::kernels::detail {

/// Adds the product to the stream. The first product of a shape asks cuBLASLt for its algorithm, later ones use the same; the first
/// one on a stream allocates that stream's workspace. Runs on Ampere and later.
void cublaslt_product(GemmProblem const& p, void* stream);

/// "cuBLASLt 13.1.0".
std::string cublaslt_description();

}  // namespace tessera::kernels::detail
