#pragma once
/// The sum of an array, left where the next kernel or copy of the queue finds it.

#include "tessera/memory/queue.hpp"
#include "tessera/memory/tensor.hpp"

namespace tessera::kernels {

/// *out = sum of in[i], in double; *out lies in memory of the queue's space. On the host in order;
/// on CUDA lane l of 128 adds the elements l, l + 128, ... and the lanes are added as a tree:
/// always the same order, another than the host's. Shapes   in [n] fp32, contiguous
void sum(memory::Queue& q, double* out, memory::ConstTensorView in);

}  // namespace tessera::kernels
