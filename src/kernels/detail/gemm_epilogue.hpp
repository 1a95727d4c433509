#pragma once
/// What follows a product as kernels of its own: on the host always, on a device where cuBLASLt
/// does not do it.

#include "detail/gemm_problem.hpp"
#include "tessera/memory/queue.hpp"

namespace tessera::kernels::detail {

/// The product before its activation: x is written to gelu_input for gelu, to c for gelu_slope.
GemmProblem without_activation(GemmProblem p);
/// The activation, from where without_activation() has left x.
void apply_activation(memory::Queue& q, GemmProblem const& p);

/// c = bias + (accumulate ? c : 0): what a product without its bias is then added to. Exact without
/// accumulate: c holds bias as it is.
void begin_with_bias(memory::Queue& q, GemmProblem const& p);

}  // namespace tessera::kernels::detail
