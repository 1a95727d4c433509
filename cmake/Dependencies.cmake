# All third-party packages. Each layer names in src/CMakeLists.txt which of them it may see.
find_package(Threads REQUIRED)
include(Mpi)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(HDF5 1.10.5 REQUIRED COMPONENTS C)
if(HDF5_IS_PARALLEL)
  message(WARNING "the HDF5 that was found is a parallel build, which loads MPI: tessera and zero-to-fp32 will need MPI on login nodes; name a serial "
                  "HDF5 with -DHDF5_ROOT=PREFIX")
endif()
# A name of Tessera's own: projects that link Tessera find HDF5 without the language C (cmake/TesseraConfig.cmake.in).
add_library(TesseraHdf5::hdf5 INTERFACE IMPORTED)
target_link_libraries(TesseraHdf5::hdf5 INTERFACE hdf5::hdf5)
find_package(nlohmann_json 3.9 REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(ZSTD IMPORTED_TARGET libzstd)   # optional: texts compressed with zstd
if(ZSTD_FOUND)
  set(TESSERA_ZSTD_LIBS PkgConfig::ZSTD)
  set(TESSERA_ZSTD_DEFINITIONS TESSERA_HAVE_ZSTD)
endif()
pkg_check_modules(SENTENCEPIECE IMPORTED_TARGET sentencepiece)   # optional: tokenizer.model of SentencePiece
if(SENTENCEPIECE_FOUND)
  list(FILTER SENTENCEPIECE_LINK_LIBRARIES EXCLUDE REGEX "sentencepiece_train")   # not used
  set_target_properties(PkgConfig::SENTENCEPIECE PROPERTIES INTERFACE_LINK_LIBRARIES "${SENTENCEPIECE_LINK_LIBRARIES}")
  set(TESSERA_SENTENCEPIECE_LIBS PkgConfig::SENTENCEPIECE)
  set(TESSERA_SENTENCEPIECE_DEFINITIONS TESSERA_HAVE_SENTENCEPIECE)
endif()
pkg_check_modules(LIBURING IMPORTED_TARGET liburing>=2.0)   # optional: swap files by io_uring instead of threads
if(LIBURING_FOUND)
  set(TESSERA_URING_LIBS PkgConfig::LIBURING)
  set(TESSERA_URING_DEFINITIONS TESSERA_HAVE_URING)
endif()

if(TESSERA_ENABLE_ARROW)
  find_package(TesseraArrow REQUIRED)   # Parquet and Arrow files
  set(TESSERA_ARROW_LIBS TesseraArrow::libraries)
  set(TESSERA_ARROW_DEFINITIONS TESSERA_HAVE_ARROW)
endif()
if(TESSERA_ENABLE_CUDA)
  include(Cuda)                      # nvcc, NCCL, cuBLASLt, cuDNN
endif()
include(Kokkos)                      # an installed Kokkos, else its source built once into the build tree
find_package(TesseraGemm REQUIRED)   # oneDNN and CBLAS for the matrix products of the host
