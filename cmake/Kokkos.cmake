# Kokkos >= 5.0: an installed package first (a center's module, Spack, CMAKE_PREFIX_PATH); else the source of 5.0.2, built with
# Tessera. Where the source comes from: TESSERA_KOKKOS_SOURCE (directory or tarball), else the folder vendor of an archive that
# cmake/bundle-sources.sh made, else cmake/get-kokkos.sh (the machine's own Debian mirror, then the project's release page); a tarball
# is always checked by SHA-256.
#
# Layers link TESSERA_KOKKOS_LIBS. In a build for GPUs Kokkos' own compile options ask for nvcc in the place of the host compiler; they are
# left out, and the sources that include Kokkos are named to tessera_compile_for_device() instead.
set(TESSERA_KOKKOS_SHA256 188817bb452ca805ee8701f1c5adbbb4fb83dc8d1c50624566a18a719ba0fa5e)

# Marks sources of the current directory that include Kokkos. Nothing to do on the host.
function(tessera_compile_for_device)
  if(TESSERA_ENABLE_CUDA)
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CUDA COMPILE_DEFINITIONS TESSERA_SHARED_MEMORY_KIB=${TESSERA_SHARED_MEMORY_KIB})
  endif()
endfunction()

# Sets `directory` to the unpacked source.
function(tessera_kokkos_source directory)
  if(IS_DIRECTORY "${TESSERA_KOKKOS_SOURCE}")
    set(${directory} "${TESSERA_KOKKOS_SOURCE}" PARENT_SCOPE)
    return()
  endif()
  set(unpacked "${PROJECT_BINARY_DIR}/kokkos-5.0.2")
  set(${directory} "${unpacked}" PARENT_SCOPE)
  if(EXISTS "${unpacked}/CMakeLists.txt")
    return()
  endif()
  set(tarball "${PROJECT_BINARY_DIR}/kokkos-5.0.2.tar.gz")
  set(bundled "${PROJECT_SOURCE_DIR}/vendor/kokkos-5.0.2.tar.gz")
  if(TESSERA_KOKKOS_SOURCE)
    set(tarball "${TESSERA_KOKKOS_SOURCE}")
  elseif(EXISTS "${bundled}")
    set(tarball "${bundled}")
  else()
    execute_process(COMMAND "${PROJECT_SOURCE_DIR}/cmake/get-kokkos.sh" "${tarball}" RESULT_VARIABLE failed)
    if(failed)
      message(FATAL_ERROR "Kokkos 5.0.2 could not be had; give its source with -DTESSERA_KOKKOS_SOURCE=DIR_OR_TARBALL "
                          "or an installed Kokkos with -DKokkos_ROOT=PREFIX")
    endif()
  endif()
  file(SHA256 "${tarball}" sum)
  if(NOT sum STREQUAL TESSERA_KOKKOS_SHA256)
    message(FATAL_ERROR "${tarball} has SHA-256 ${sum}, expected ${TESSERA_KOKKOS_SHA256} (Kokkos 5.0.2)")
  endif()
  file(ARCHIVE_EXTRACT INPUT "${tarball}" DESTINATION "${PROJECT_BINARY_DIR}")
endfunction()

# Kokkos with CUDA needs another compiler than the project (its nvcc_wrapper), so it is built in a tree of its own and installed
# into `prefix`, once.
function(tessera_build_cuda_kokkos prefix)
  if(EXISTS "${prefix}/built")
    return()
  endif()
  tessera_kokkos_source(source)
  list(GET TESSERA_CUDA_ARCHITECTURES_USED 0 lowest)
  tessera_kokkos_architecture(name "${lowest}")
  if(NOT name)
    message(FATAL_ERROR "TESSERA_CUDA_ARCHITECTURES is '${TESSERA_CUDA_ARCHITECTURES}', and Kokkos 5.0.2 has no architecture ${lowest}; the lowest "
                        "must be one of 75 80 86 87 89 90 100 120")
  endif()
  message(STATUS "Tessera: building Kokkos 5.0.2 with CUDA for ${name} once, some minutes; see ${prefix}.log")
  cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
  cmake_path(GET CMAKE_CUDA_COMPILER PARENT_PATH toolkit)   # the wrapper would take nvcc and g++ from PATH
  cmake_path(GET toolkit PARENT_PATH toolkit)
  set(compilers "${CMAKE_COMMAND}" -E env "CUDA_ROOT=${toolkit}" "NVCC_WRAPPER_DEFAULT_COMPILER=${CMAKE_CXX_COMPILER}")
  set(toolchain)
  if(CMAKE_TOOLCHAIN_FILE)
    set(toolchain "-DCMAKE_TOOLCHAIN_FILE=${CMAKE_TOOLCHAIN_FILE}" "-DTESSERA_SYSROOT=${TESSERA_SYSROOT}")
  endif()
  execute_process(
    COMMAND ${compilers} "${CMAKE_COMMAND}" ${toolchain} -S "${source}" -B "${prefix}-build" -G "${CMAKE_GENERATOR}" -DCMAKE_BUILD_TYPE=Release
            "-DCMAKE_CXX_COMPILER=${source}/bin/nvcc_wrapper" -DCMAKE_CXX_STANDARD=20 -DCMAKE_CXX_EXTENSIONS=OFF
            -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DKokkos_ENABLE_CUDA=ON -DKokkos_ENABLE_OPENMP=ON -DKokkos_ENABLE_SERIAL=ON
            -DKokkos_ARCH_${name}=ON -DKokkos_ENABLE_DEPRECATED_CODE_4=OFF "-DCMAKE_INSTALL_PREFIX=${prefix}"
            "-DCMAKE_INSTALL_LIBDIR=${CMAKE_INSTALL_LIBDIR}"
    OUTPUT_FILE "${prefix}.log" ERROR_FILE "${prefix}.log" RESULT_VARIABLE failed)
  if(NOT failed)
    execute_process(COMMAND ${compilers} "${CMAKE_COMMAND}" --build "${prefix}-build" --target install --parallel ${cores}
                    OUTPUT_FILE "${prefix}.log" ERROR_FILE "${prefix}.log" RESULT_VARIABLE failed)
  endif()
  if(failed)
    message(FATAL_ERROR "building Kokkos with CUDA failed; the reason is in ${prefix}.log")
  endif()
  file(TOUCH "${prefix}/built")
endfunction()

if(NOT TARGET Kokkos::kokkos)
  find_package(Kokkos 5.0 QUIET COMPONENTS separable_compilation NO_CMAKE_PACKAGE_REGISTRY)  # no build trees of other projects
endif()
if(Kokkos_FOUND)
  message(STATUS "Tessera: Kokkos ${Kokkos_VERSION} from ${Kokkos_DIR}")
  if(NOT TESSERA_ENABLE_CUDA AND "CUDA" IN_LIST Kokkos_DEVICES)
    message(FATAL_ERROR "${Kokkos_DIR} was built with CUDA, which the host build cannot use; configure with --preset cuda, or name another "
                        "Kokkos with -DKokkos_ROOT=PREFIX (without any, its source is built along)")
  endif()
elseif(TESSERA_ENABLE_CUDA)
  list(GET TESSERA_CUDA_ARCHITECTURES_USED 0 lowest)
  set(kokkos_prefix "${PROJECT_BINARY_DIR}/kokkos-cuda-${lowest}")
  tessera_build_cuda_kokkos("${kokkos_prefix}")
  find_package(Kokkos 5.0 REQUIRED COMPONENTS separable_compilation PATHS "${kokkos_prefix}" NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
  set(TESSERA_KOKKOS_TREE "${kokkos_prefix}")
else()
  tessera_kokkos_source(kokkos_dir)
  set(Kokkos_ENABLE_OPENMP ON CACHE BOOL "")
  set(Kokkos_ENABLE_SERIAL ON CACHE BOOL "")
  set(Kokkos_ENABLE_DEPRECATED_CODE_4 OFF CACHE BOOL "")
  set(TESSERA_KOKKOS_BUILD "${PROJECT_BINARY_DIR}/kokkos")
  set(TESSERA_KOKKOS_TREE "${PROJECT_BINARY_DIR}/kokkos-tree")   # of cmake/Install.cmake
  add_subdirectory("${kokkos_dir}" "${TESSERA_KOKKOS_BUILD}" EXCLUDE_FROM_ALL SYSTEM)   # not its install rules, which install scripts too
  set_target_properties(kokkoscore PROPERTIES UNITY_BUILD ${TESSERA_UNITY} UNITY_BUILD_BATCH_SIZE 0)
endif()

if(TESSERA_ENABLE_CUDA)
  if(NOT "CUDA" IN_LIST Kokkos_DEVICES)
    message(FATAL_ERROR "${Kokkos_DIR} was built without CUDA (it has ${Kokkos_DEVICES}); give one that has it with -DKokkos_ROOT=PREFIX, "
                        "or none, then it is built here")
  endif()
  list(SORT Kokkos_CUDA_ARCHITECTURES COMPARE NATURAL)
  list(GET Kokkos_CUDA_ARCHITECTURES 0 lowest)
  tessera_architectures_for_kokkos(TESSERA_CUDA_ARCHITECTURES_USED "${TESSERA_CUDA_ARCHITECTURES_USED}" "${lowest}")
  tessera_architecture_flags(CMAKE_CUDA_ARCHITECTURES "${TESSERA_CUDA_ARCHITECTURES_USED}")
  list(JOIN TESSERA_CUDA_ARCHITECTURES_USED " " architectures)
  list(APPEND TESSERA_DEVICE_DEFINITIONS "TESSERA_CUDA_ARCHITECTURES=\"${architectures}\"")   # a device is checked before a kernel fails on it
  message(STATUS "Tessera: device code for architectures ${architectures}, and later ones through PTX")
  # Its link options are for nvcc as the linker, and its libraries are the driver's, which a machine may lack, and the shared runtime.
  set_target_properties(Kokkos::kokkoscore PROPERTIES INTERFACE_LINK_OPTIONS "")
  if(TARGET Kokkos::CUDA)
    set_target_properties(Kokkos::CUDA PROPERTIES INTERFACE_LINK_LIBRARIES tessera_cuda_driver)
  endif()
  add_library(tessera_kokkos_headers INTERFACE)
  target_include_directories(tessera_kokkos_headers SYSTEM INTERFACE
    "$<TARGET_PROPERTY:Kokkos::kokkoscore,INTERFACE_INCLUDE_DIRECTORIES>" ${CUDAToolkit_INCLUDE_DIRS})
  set(TESSERA_KOKKOS_LIBS $<LINK_ONLY:Kokkos::kokkos> $<BUILD_INTERFACE:tessera_kokkos_headers>)
else()
  set(TESSERA_KOKKOS_LIBS Kokkos::kokkos)
endif()
