#pragma once
/// Names the host's matrix product library. In a header and source of its own, so that a program
/// that only prints the name does not link cuBLASLt.

#include <string>

namespace tessera::kernels {

/// "oneDNN 2.6.3 (AVX-512, bf16 native)", for --version and reports.
std::string gemm_library();

}  // namespace tessera::kernels
