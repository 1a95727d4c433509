# The device path's compiler and libraries. Device code is CMake's own CUDA language: only the sources that see Kokkos go through
# nvcc (tessera_compile_for_device), everything else stays with the host compiler.
set(CMAKE_CUDA_ARCHITECTURES OFF)   # chosen below, and by cmake/Kokkos.cmake
set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
set(CMAKE_CUDA_RUNTIME_LIBRARY "${TESSERA_CUDA_RUNTIME}")
enable_language(CUDA)
if(TESSERA_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${TESSERA_CCACHE}")
endif()
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)   # CMake 3.25.1 does not know yet that nvcc has C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
find_package(CUDAToolkit 12.4 REQUIRED)
include(CudaArchitectures)
tessera_wanted_architectures(TESSERA_CUDA_ARCHITECTURES_USED)

# NCCL and cuDNN lie beside the toolkit, in the distribution's directories, or where NCCL_ROOT and CUDNN_ROOT say.
find_path(TESSERA_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(TESSERA_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
if(NOT TESSERA_NCCL_INCLUDE OR NOT TESSERA_NCCL_LIBRARY)
  message(FATAL_ERROR "TESSERA_ENABLE_CUDA needs NCCL 2.18 or newer: nccl.h and libnccl were not found. "
                      "Install it or give its place with -DNCCL_ROOT=PREFIX")
endif()
file(STRINGS "${TESSERA_NCCL_INCLUDE}/nccl.h" lines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE "[^0-9]+" "." TESSERA_NCCL_VERSION "${lines}")
string(REGEX REPLACE "^\\.|\\.$" "" TESSERA_NCCL_VERSION "${TESSERA_NCCL_VERSION}")
if(TESSERA_NCCL_VERSION VERSION_LESS 2.18)
  message(FATAL_ERROR "${TESSERA_NCCL_INCLUDE}/nccl.h is of NCCL ${TESSERA_NCCL_VERSION}; 2.18 or newer is needed")
endif()
add_library(tessera_cuda_headers INTERFACE)
target_include_directories(tessera_cuda_headers SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS} "${TESSERA_NCCL_INCLUDE}")

# What a layer that calls the runtime links. The headers are needed for building only; cuBLASLt is loaded when it is first used.
if(TESSERA_CUDA_RUNTIME STREQUAL "Shared")
  set(TESSERA_CUDA_LIBS CUDA::cudart)
elseif(NOT TESSERA_CUDA_RUNTIME STREQUAL "Static")
  message(FATAL_ERROR "TESSERA_CUDA_RUNTIME is '${TESSERA_CUDA_RUNTIME}'; it must be Static or Shared")
else()
  set(TESSERA_CUDA_LIBS CUDA::cudart_static)
endif()
add_library(tessera_cuda_driver STATIC "${PROJECT_SOURCE_DIR}/src/cuda_driver/cuda_driver.cpp")
target_include_directories(tessera_cuda_driver SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(tessera_cuda_driver PUBLIC ${TESSERA_CUDA_LIBS} ${CMAKE_DL_LIBS})
list(APPEND TESSERA_CUDA_LIBS $<BUILD_INTERFACE:tessera_cuda_headers>)
set(TESSERA_CUDA_DEFINITIONS TESSERA_HAVE_CUDA "TESSERA_CUDA_LIBRARY_DIR=\"${CUDAToolkit_LIBRARY_DIR}\"")
set(TESSERA_NCCL_LIBS "${TESSERA_NCCL_LIBRARY}")
message(STATUS "Tessera: CUDA ${CUDAToolkit_VERSION}, ${TESSERA_CUDA_RUNTIME} runtime, NCCL ${TESSERA_NCCL_VERSION}")

# Flags of device code. No extended lambdas anywhere; relaxed constexpr for std::bit_cast and numeric_limits.
set(tessera_cuda_flags --expt-relaxed-constexpr)
set(tessera_host_flags -fopenmp -fno-math-errno -fno-trapping-math -Wall -Wextra -Wno-unknown-pragmas -Wno-unused-parameter)
if(NOT TESSERA_ARCH_USED STREQUAL "none")
  list(APPEND tessera_host_flags -march=${TESSERA_ARCH_USED})
  if(TESSERA_ARCH_USED STREQUAL "x86-64-v4")
    list(APPEND tessera_host_flags -mprefer-vector-width=512)
  endif()
endif()
list(JOIN tessera_host_flags "," tessera_host_flags)
target_compile_options(tessera_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:${tessera_cuda_flags}> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${tessera_host_flags}>)
