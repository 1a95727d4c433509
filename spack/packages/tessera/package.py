# Recipe for a local Spack repository: spack repo add <source>/spack; spack install tessera
from spack.package import *


class Tessera(CMakePackage):
    """ZeRO training toolkit for supercomputers: MPI, Kokkos, HDF5 checkpoints, DeepSpeed-compatible configuration."""

    # Built from the checkout that holds this recipe: spack dev-build tessera@main, or spack develop --path <source> tessera@main
    version("main", branch="main")

    variant("arrow", default=False, description="Read Parquet and Arrow files")
    variant("native", default=False, description="Use the instruction set of the build machine instead of Spack's target")

    generator("ninja")
    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("mpi")
    depends_on("hdf5@1.10.5:")
    depends_on("kokkos@5.0: +openmp")
    depends_on("onednn@2.6:")
    depends_on("nlohmann-json")
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
    depends_on("arrow+parquet", when="+arrow")
    depends_on("liburing")
    depends_on("googletest", type="test")

    def cmake_args(self):
        return [
            self.define("TESSERA_BUILD_TESTS", self.run_tests),
            self.define("TESSERA_BUILD_BENCH", False),
            self.define("TESSERA_ENABLE_ARROW", self.spec.satisfies("+arrow")),
            self.define("TESSERA_INSTALL_MODULEFILES", False),  # Spack writes its own
            self.define("TESSERA_ARCH", "auto" if self.spec.satisfies("+native") else "none"),
        ]

    def test_selftest(self):
        """train, save, verify and resume with the installed programs"""
        which(self.prefix.bin.tessera)("selftest", "--dir", ".")
