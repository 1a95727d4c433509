#include "tessera/train/report/version.hpp"

#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/kernels/gemm/gemm_headers.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/topology/mpi_headers.hpp"
#include "version_config.hpp"

namespace tessera::train {

ConfigTree build_versions() {
  ConfigTree tree;
  tree.set("tessera", TESSERA_VERSION).set("commit", TESSERA_COMMIT).set("build", TESSERA_BUILD);
  tree.set("compiler", TESSERA_COMPILER)
      .set("mpi", topology::mpi_version_of_headers())
      .set("hdf5", checkpoint::hdf5_version());
  tree.set("kokkos", memory::Runtime::kokkos_version())
      .set("blas", kernels::gemm_libraries_of_headers());
  tree.set("device", TESSERA_DEVICE).set("nccl", TESSERA_NCCL).set("cudnn", TESSERA_CUDNN);
  return tree;
}

std::string source_date() { return TESSERA_DATE; }

std::string version_text(std::string const& program, ConfigTree const& versions) {
  std::string out = program + " " + versions.at("tessera").as_string() + "\n";
  for (auto const& [key, value] : versions.as_object())
    if (key != "tessera")
      out += "  " + key + std::string(key.size() < 9 ? 9 - key.size() : 1, ' ') +
             value.as_string() + "\n";
  return out;
}

}  // namespace tessera::train
