#pragma once
/// The matrix product libraries that this build was compiled with, for programs that do not link
/// them.

#include <string>

namespace tessera::kernels {

/// "oneDNN 2.7.3, OpenBLAS 0.3.21", from the headers of the libraries. gemm_library() names the one
/// that is used.
std::string gemm_libraries_of_headers();

}  // namespace tessera::kernels
