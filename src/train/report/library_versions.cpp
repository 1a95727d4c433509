#include "tessera/train/report/version.hpp"

#include "tessera/kernels/gemm/gemm_headers.hpp"
#include "tessera/topology/mpi_session.hpp"

namespace tessera::train {

ConfigTree library_versions() {
  return build_versions()
      .set("mpi", topology::MpiSession::library_version())
      .set("blas", kernels::gemm_library());
}

}  // namespace tessera::train
