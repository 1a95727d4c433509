#include "tessera/kernels/gemm/gemm_headers.hpp"

#include <string_view>

#include "tessera/core/error.hpp"

#ifdef TESSERA_HAVE_ONEDNN
#include <dnnl_version.h>
#endif
#ifdef TESSERA_HAVE_CBLAS
#include <cblas.h>
#endif

namespace tessera::kernels {

std::string gemm_libraries_of_headers() {
  std::string out;
#ifdef TESSERA_HAVE_ONEDNN
  out = concat("oneDNN ", DNNL_VERSION_MAJOR, ".", DNNL_VERSION_MINOR, ".", DNNL_VERSION_PATCH);
#endif
#ifdef TESSERA_HAVE_CBLAS
#ifdef OPENBLAS_VERSION
  std::string_view blas = OPENBLAS_VERSION;  // " OpenBLAS 0.3.21 "
  blas.remove_prefix(blas.find_first_not_of(' '));
  blas = blas.substr(0, blas.find_last_not_of(' ') + 1);
#else
  std::string_view const blas = "CBLAS";
#endif
  out += concat(out.empty() ? "" : ", ", blas);
#endif
  return out;
}

}  // namespace tessera::kernels
