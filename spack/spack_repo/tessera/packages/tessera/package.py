# Recipe for Spack 1.0 and later: spack repo add <source>/spack/spack_repo/tessera; spack install tessera
from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Tessera(CMakePackage, CudaPackage):
    """ZeRO training toolkit for supercomputers: MPI, Kokkos, HDF5 checkpoints, DeepSpeed-compatible configuration."""

    # Reserved names until the project has a public home (docs/development/release.md).
    homepage = "https://tessera.invalid"
    git = "https://tessera.invalid/tessera.git"

    maintainers("tessera-maintainers")

    license("Apache-2.0", checked_by="tessera-maintainers")

    # From the checkout that holds this recipe: spack dev-build tessera@main, or spack develop --path <source> tessera@main
    version("main", branch="main")
    version("0.2.0", tag="v0.2.0")

    # cuda and cuda_arch are variants of CudaPackage.
    variant("arrow", default=False, description="Read Parquet and Arrow files")
    variant("native", default=False, description="Use the instruction set of the build machine instead of Spack's target")

    generator("ninja")
    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi")
    depends_on("hdf5@1.10.5: ~mpi")  # a serial one: tools on login nodes load no MPI
    depends_on("kokkos@5.0: +openmp+serial")
    depends_on("onednn@2.6:")
    depends_on("nlohmann-json@3.9:")
    depends_on("fmt")
    depends_on("spdlog")
    depends_on("hwloc")
    depends_on("xxhash")
    depends_on("pcre2")
    depends_on("utf8proc")
    depends_on("libyaml")
    depends_on("zlib-api")
    depends_on("zstd")
    depends_on("sentencepiece")
    depends_on("liburing@2:")
    depends_on("arrow+parquet", when="+arrow")
    depends_on("googletest", type="test")

    with when("+cuda"):
        depends_on("cuda@12.4:")
        depends_on("nccl@2.19:")
        depends_on("kokkos+cuda+wrapper")
        conflicts("cuda_arch=none", msg="name the architecture of your GPUs, such as cuda_arch=90")
    for arch in CudaPackage.cuda_arch_values:  # Kokkos is built for one architecture
        depends_on(f"kokkos cuda_arch={arch}", when=f"+cuda cuda_arch={arch}")

    def cmake_args(self):
        args = [
            self.define("TESSERA_BUILD_TESTS", self.run_tests),
            self.define("TESSERA_BUILD_BENCH", False),
            self.define_from_variant("TESSERA_ENABLE_ARROW", "arrow"),
            self.define_from_variant("TESSERA_ENABLE_CUDA", "cuda"),
            self.define("TESSERA_INSTALL_MODULEFILES", False),  # Spack writes its own
            self.define("TESSERA_ARCH", "auto" if self.spec.satisfies("+native") else "none"),
        ]
        if self.spec.satisfies("+cuda"):
            args.append(self.define("TESSERA_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value))
            args.append(self.define("TESSERA_CUDNN_FRONTEND", "OFF"))  # Spack has no package of cuDNN's frontend
        return args

    def test_selftest(self):
        """train, save, verify and resume with the installed programs"""
        which(self.prefix.bin.tessera)("selftest", "--dir", ".")
