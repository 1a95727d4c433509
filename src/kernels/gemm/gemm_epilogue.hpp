#pragma once
/// Bias and activation of a matrix product: as separate kernels (on the host always, on a device
/// where cuBLASLt does not compute them), and the choice between these and cuBLASLt's epilogues.

#include <optional>

#include "gemm/gemm_problem.hpp"
#include "tessera/kernels/launch/device_settings.hpp"
#include "tessera/memory/queue.hpp"

namespace tessera::kernels::detail {

/// The product before its activation: x is written to gelu_input for gelu, to c for gelu_slope.
GemmProblem without_activation(GemmProblem p);
/// The activation of x, which without_activation() left in gelu_input or c.
void apply_activation(memory::Queue& q, GemmProblem const& p);

/// c = bias + (accumulate ? c : 0), to which a product without bias is then added. Exact without
/// accumulate: c holds the bias itself.
void begin_with_bias(memory::Queue& q, GemmProblem const& p);

/// Where gelu_new and its gradient are computed on a device.
enum class GeluKernel {
  epilogue,  ///< in the product, by cuBLASLt
  separate,  ///< in a kernel after the product
};
/// The faster one. Measured by others (llm.c, pull requests 338 and 653): the epilogue is up to 1 %
/// faster on Hopper with cuBLASLt 12.5 or newer; older versions write twice or start a separate,
/// slower kernel.
GeluKernel faster_gelu(int capability_major, std::size_t cublaslt_version);
/// Follows the setting. DeviceGelu::automatic takes the epilogue only for 16-bit results: the
/// accuracy of cuBLASLt's tanh is not documented, and users of fp32 want all bits.
GeluKernel choose_gelu(DeviceGelu wanted, Dtype out, GeluKernel faster);

/// Largest power of two up to 256 that divides the address; 256 for null.
std::uint32_t alignment_of(void const* data);
/// Whether cuBLASLt is asked for p in one call. Not for: an empty sum; a bias whose dtype differs
/// from the result's, as of fp8 products with an fp32 result; an input of GELU whose leading
/// dimension is no multiple of 8 elements (comments of cublasLt.h) or that is not aligned to 16
/// bytes (for the same reason); DGELU with a bias, which has no epilogue.
bool fits_one_call(GemmProblem const& p, GeluKernel gelu);

/// Two products that together are one; `rest` is computed first.
struct SplitProduct {
  GemmProblem rest, aligned;
};
/// Takes the last elements of a long dimension that is no multiple of 8 off a 16-bit product, when
/// rows have aligned gaps: tensor cores want multiples of 8 (cuBLAS manual, "Tensor Core Usage").
/// The three products of a head with 50257 tokens took 72 ms of a GPT-2 124M's step on an H200,
/// with 50304 tokens 17 ms. Of a sum's parts the short one is rounded to c's dtype.
std::optional<SplitProduct> split_unaligned(GemmProblem const& p);

}  // namespace tessera::kernels::detail
