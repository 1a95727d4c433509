#pragma once
/// Matrix products on a CUDA stream through cuBLASLt.

#include <cstddef>
#include <string>

#include "detail/gemm_problem.hpp"
#include "tessera/memory/queue.hpp"

namespace tessera::kernels::detail {

/// Adds the product to the stream queue. The first product of a shape asks cuBLASLt for its
/// algorithm, later ones use the same; the first one on a stream allocates that stream's workspace.
/// What cuBLASLt has no algorithm for in one is done in steps: bias, product, activation. Runs on
/// Ampere and later.
void cublaslt_product(memory::Queue& q, GemmProblem const& p);

/// Whether gelu_new and its gradient are worth their place in a product. Measured by others (llm.c,
/// pull requests 338 and 653): a gain of up to 1 % on Hopper with cuBLASLt 12.5 or newer; before
/// that cuBLASLt writes twice or starts a kernel of its own and is slower than ours.
bool gelu_epilogue_pays(int capability_major, std::size_t library_version);

/// "cuBLASLt 13.1.0".
std::string cublaslt_description();

}  // namespace tessera::kernels::detail
