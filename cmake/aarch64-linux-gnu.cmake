# Toolchain: aarch64 programs on another Linux machine with Debian's cross compiler. TESSERA_SYSROOT is a folder with the packages of Debian for
# arm64, unpacked; tests/install/aarch64.sh makes one. Programs run by qemu-user: tests, and tessera where the build calls it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
if(NOT CMAKE_CXX_COMPILER)   # Kokkos for GPUs is compiled by its wrapper of nvcc
  set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
endif()

if(NOT TESSERA_SYSROOT)
  set(TESSERA_SYSROOT "$ENV{TESSERA_SYSROOT}")
endif()
if(NOT IS_DIRECTORY "${TESSERA_SYSROOT}/usr/include")
  message(FATAL_ERROR "TESSERA_SYSROOT is '${TESSERA_SYSROOT}', which has no usr/include; tests/install/aarch64.sh sysroot DIR makes it")
endif()
set(TESSERA_SYSROOT "${TESSERA_SYSROOT}" CACHE PATH "Folder with Debian's packages for arm64")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TESSERA_SYSROOT)
set(CMAKE_SYSROOT "${TESSERA_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(kind IN ITEMS LIBRARY INCLUDE PACKAGE)
  set(CMAKE_FIND_ROOT_PATH_MODE_${kind} ONLY)
endforeach()
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64-static;-L;${TESSERA_SYSROOT}")

# What wrappers of compilers and alternatives of Debian say on a machine of this kind.
set(libraries "${TESSERA_SYSROOT}/usr/lib/aarch64-linux-gnu")
set(ENV{PKG_CONFIG_LIBDIR} "${libraries}/pkgconfig:${TESSERA_SYSROOT}/usr/share/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${TESSERA_SYSROOT}")
set(CMAKE_LIBRARY_PATH "${libraries}/hdf5/serial" "${libraries}/openblas-openmp")
set(CMAKE_INCLUDE_PATH "${TESSERA_SYSROOT}/usr/include/hdf5/serial" "${TESSERA_SYSROOT}/usr/include/aarch64-linux-gnu/openblas-openmp")
set(HDF5_C_COMPILER_EXECUTABLE "" CACHE FILEPATH "no wrapper: its paths are those of the build machine")
set(MPI_CXX_COMPILER "${CMAKE_CXX_COMPILER}-mpi" CACHE FILEPATH "no wrapper: its paths are those of the build machine")
set(MPI_CXX_LIB_NAMES mpi CACHE STRING "")
set(MPI_mpi_LIBRARY "${libraries}/libmpi.so.40" CACHE FILEPATH "")
set(MPI_CXX_COMPILER_INCLUDE_DIRS "${libraries}/openmpi/include;${libraries}/openmpi/include/openmpi" CACHE STRING "")
# Libraries need others that are only in these folders.
add_link_options("LINKER:-rpath-link,${libraries}" "LINKER:-rpath-link,${libraries}/openblas-openmp")
