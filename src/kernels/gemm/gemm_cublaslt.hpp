#pragma once
/// Matrix products on a CUDA stream through cuBLASLt.

#include <string>

#include "gemm/gemm_problem.hpp"
#include "tessera/memory/queue.hpp"

namespace tessera::kernels::detail {

/// Enqueues the product on the stream. The first product of a shape asks cuBLASLt for an algorithm;
/// later ones reuse it. The first product on a stream allocates that stream's workspace. A product
/// that cuBLASLt cannot compute in one call runs in steps: bias, product, activation. Needs Ampere
/// or later.
/// @throws InternalError in builds without CUDA
void cublaslt_product(memory::Queue& q, GemmProblem const& p);

/// "cuBLASLt 13.1.0".
std::string cublaslt_description();

}  // namespace tessera::kernels::detail
