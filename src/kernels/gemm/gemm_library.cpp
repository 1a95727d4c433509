#include "tessera/kernels/gemm/gemm_headers.hpp"

#include <omp.h>

#include "gemm/gemm_libraries.hpp"
#include "gemm/gemm_routes.hpp"

namespace tessera::kernels {

std::string gemm_library() {
  std::string out;
#ifdef TESSERA_HAVE_ONEDNN
  if (detail::choose_library(omp_get_max_threads()) == detail::SgemmLibrary::onednn)
    out = detail::onednn_description();
#endif
#ifdef TESSERA_HAVE_CBLAS
  if (out.empty()) out = detail::blas_description();
#endif
  detail::GemmProblem p;
  p.k = 1;
  p.in = p.out = Dtype::bf16;
  return out + (detail::choose_route(p) == detail::GemmRoute::native ? ", bf16 native"
                                                                     : ", bf16 through fp32");
}

}  // namespace tessera::kernels
