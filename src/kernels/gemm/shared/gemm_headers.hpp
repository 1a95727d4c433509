#pragma once
/// The matrix product libraries of this build. Each function has a source of its own: a program
/// that calls the first links none of the libraries, and one that calls the second does not link
/// cuBLASLt.

#include <string>

namespace tessera::kernels {

/// "oneDNN 2.7.3, OpenBLAS 0.3.21", from the headers of the libraries. gemm_library() names the one
/// that is used.
std::string gemm_libraries_of_headers();

/// The library that is used: "oneDNN 2.6.3 (AVX-512, bf16 native)", for --version and reports.
std::string gemm_library();

}  // namespace tessera::kernels
