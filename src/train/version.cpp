#include "tessera/train/version.hpp"

#include "tessera/checkpoint/format/hdf5_version.hpp"
#include "tessera/kernels/gemm_library.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/topology/mpi_session.hpp"
#include "version_config.hpp"

namespace tessera::train {

ConfigTree versions_tree() {
  ConfigTree tree;
  tree.set("tessera", TESSERA_VERSION).set("commit", TESSERA_COMMIT).set("build", TESSERA_BUILD);
  tree.set("compiler", TESSERA_COMPILER)
      .set("mpi", topology::MpiSession::library_version())
      .set("hdf5", checkpoint::hdf5_version());
  tree.set("kokkos", memory::Runtime::kokkos_version()).set("blas", kernels::gemm_library());
  tree.set("cuda", TESSERA_CUDA).set("nccl", TESSERA_NCCL).set("cudnn", TESSERA_CUDNN);
  return tree;
}

std::string source_date() { return TESSERA_DATE; }

std::string version_text(std::string const& program) {
  auto const tree = versions_tree();
  std::string out = program + " " + tree.at("tessera").as_string() + "\n";
  for (auto const& [key, value] : tree.as_object())
    if (key != "tessera")
      out += "  " + key + std::string(key.size() < 9 ? 9 - key.size() : 1, ' ') +
             value.as_string() + "\n";
  return out;
}

}  // namespace tessera::train
