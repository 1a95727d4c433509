#include "gemm/gemm_libraries.hpp"

#ifdef TESSERA_HAVE_CBLAS
#include <cblas.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "tessera/core/error.hpp"

namespace tessera::kernels::detail {

#ifdef OPENBLAS_VERSION
std::string blas_description() {
  std::string_view version = OPENBLAS_VERSION;  // " OpenBLAS 0.3.21 "
  version.remove_prefix(std::min(version.find_first_not_of(' '), version.size()));
  return concat(version.substr(0, version.find_last_not_of(' ') + 1), " (", openblas_get_corename(),
                ")");
}

bool blas_suits_vectors(int threads) {
#if defined(__aarch64__)
  bool const knows_vectors = true;  // every core of OpenBLAS has NEON; oneDNN is plain C++ there
#else
  std::string_view const core = openblas_get_corename();
  bool const knows_vectors =
      core == "Haswell" || core == "Zen" || core == "SkylakeX" || core == "Cooperlake";
#endif
  return knows_vectors && (threads == 1 || openblas_get_parallel() == OPENBLAS_OPENMP);
}

void blas_set_threads(int threads) {
  if (openblas_get_num_threads() != threads) openblas_set_num_threads(threads);
}
#else
std::string blas_description() { return "CBLAS"; }
void blas_set_threads(int) {}
bool blas_suits_vectors(int) { return false; }
#endif

void blas_sgemm(Sgemm const& s) {
  constexpr std::int64_t most = std::numeric_limits<int>::max();
  TESSERA_VALIDATE(
      s.m <= most && s.n <= most && s.k <= most && s.lda <= most && s.ldb <= most && s.ldc <= most,
      InternalError, "the product [", s.m, ", ", s.k, "] x [", s.k, ", ", s.n,
      "] has a dimension beyond ", most, ", more than this CBLAS counts; build with oneDNN");
  auto const op = [](bool transpose) { return transpose ? CblasTrans : CblasNoTrans; };
  auto const i = [](std::int64_t v) { return static_cast<int>(v); };
  cblas_sgemm(CblasRowMajor, op(s.transpose_a), op(s.transpose_b), i(s.m), i(s.n), i(s.k), s.alpha,
              s.a, i(s.lda), s.b, i(s.ldb), s.beta, s.c, i(s.ldc));
}

}  // namespace tessera::kernels::detail
#endif
