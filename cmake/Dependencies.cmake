# All third-party packages. Each layer names in src/CMakeLists.txt which of them it may see.
find_package(Threads REQUIRED)
find_package(MPI REQUIRED COMPONENTS CXX)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(HDF5 1.10.5 REQUIRED COMPONENTS C)
find_package(nlohmann_json 3.9 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)

if(TESSERA_ENABLE_CUDA)
  include(Cuda)                      # nvcc, NCCL, cuBLASLt, cuDNN
endif()
include(Kokkos)                      # an installed Kokkos, else its source built once into the build tree
find_package(TesseraGemm REQUIRED)   # oneDNN and CBLAS for the matrix products of the host
