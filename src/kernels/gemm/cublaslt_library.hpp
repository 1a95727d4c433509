#pragma once
/// cuBLASLt's functions, loaded with the first product on a device: programs that compute on the
/// host, and the tools of a login node, start without it.

#ifdef TESSERA_HAVE_CUDA
#include <cublasLt.h>

#include "tessera/core/error.hpp"
#include "tessera/core/shared_library.hpp"

namespace tessera::kernels::detail {

#define TESSERA_CUBLASLT_FUNCTIONS(use)                                                          \
  use(cublasLtCreate) use(cublasLtGetStatusString) use(cublasLtGetVersion) use(cublasLtMatmul)   \
      use(cublasLtMatmulAlgoCheck) use(cublasLtMatmulAlgoGetHeuristic)                           \
          use(cublasLtMatmulDescCreate) use(cublasLtMatmulDescDestroy)                           \
              use(cublasLtMatmulDescSetAttribute) use(cublasLtMatmulPreferenceCreate)            \
                  use(cublasLtMatmulPreferenceDestroy) use(cublasLtMatmulPreferenceSetAttribute) \
                      use(cublasLtMatrixLayoutCreate) use(cublasLtMatrixLayoutDestroy)

struct CublasLt {
#define TESSERA_DECLARE(name) decltype(::name)* name = nullptr;
  TESSERA_CUBLASLT_FUNCTIONS(TESSERA_DECLARE)
#undef TESSERA_DECLARE

  /// @throws ConfigError when the library is missing or too old
  static CublasLt const& of_process() {
    static CublasLt const functions;
    return functions;
  }

 private:
  CublasLt() {
    std::string const file = concat("libcublasLt.so.", CUBLAS_VER_MAJOR);
    SharedLibrary const library({file, concat(TESSERA_CUDA_LIBRARY_DIR "/", file)});
    TESSERA_VALIDATE(library.loaded(), ConfigError,
                     "matrix products on the GPU need cuBLASLt: ", library.load_error(),
                     "; load the CUDA module this program was built with, or add its library "
                     "directory to LD_LIBRARY_PATH");
#define TESSERA_FIND(name)                                                          \
  TESSERA_VALIDATE(library.find(#name, name), ConfigError, file, " has no ", #name, \
                   "; it is older than the one this program was built with");
    TESSERA_CUBLASLT_FUNCTIONS(TESSERA_FIND)
#undef TESSERA_FIND
  }
};

}  // namespace tessera::kernels::detail
#endif
