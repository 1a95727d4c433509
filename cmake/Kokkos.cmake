# Kokkos >= 5.0: an installed package first (a centre's module, Spack, CMAKE_PREFIX_PATH); else the source of 5.0.2, built with
# Tessera. Where the source comes from: TESSERA_KOKKOS_SOURCE (directory or tarball), else cmake/get-kokkos.sh (the project's
# release page, then the machine's own Debian mirror), always checked by SHA-256.
set(TESSERA_KOKKOS_SHA256 188817bb452ca805ee8701f1c5adbbb4fb83dc8d1c50624566a18a719ba0fa5e)

find_package(Kokkos 5.0 QUIET)
if(Kokkos_FOUND)
  message(STATUS "Tessera: Kokkos ${Kokkos_VERSION} from ${Kokkos_DIR}")
  return()
endif()

set(kokkos_tarball "${PROJECT_BINARY_DIR}/kokkos-5.0.2.tar.gz")
set(kokkos_dir "${PROJECT_BINARY_DIR}/kokkos-5.0.2")
if(IS_DIRECTORY "${TESSERA_KOKKOS_SOURCE}")
  set(kokkos_dir "${TESSERA_KOKKOS_SOURCE}")
elseif(NOT EXISTS "${kokkos_dir}/CMakeLists.txt")
  if(TESSERA_KOKKOS_SOURCE)
    set(kokkos_tarball "${TESSERA_KOKKOS_SOURCE}")
  else()
    execute_process(COMMAND "${PROJECT_SOURCE_DIR}/cmake/get-kokkos.sh" "${kokkos_tarball}" RESULT_VARIABLE failed)
    if(failed)
      message(FATAL_ERROR "Kokkos 5.0.2 could not be had; give its source with -DTESSERA_KOKKOS_SOURCE=DIR_OR_TARBALL "
                          "or an installed Kokkos with -DKokkos_ROOT=PREFIX")
    endif()
  endif()
  file(SHA256 "${kokkos_tarball}" kokkos_sum)
  if(NOT kokkos_sum STREQUAL TESSERA_KOKKOS_SHA256)
    message(FATAL_ERROR "${kokkos_tarball} has SHA-256 ${kokkos_sum}, expected ${TESSERA_KOKKOS_SHA256} (Kokkos 5.0.2)")
  endif()
  file(ARCHIVE_EXTRACT INPUT "${kokkos_tarball}" DESTINATION "${PROJECT_BINARY_DIR}")
endif()

set(Kokkos_ENABLE_OPENMP ON CACHE BOOL "")
set(Kokkos_ENABLE_SERIAL ON CACHE BOOL "")
set(Kokkos_ENABLE_DEPRECATED_CODE_4 OFF CACHE BOOL "")
set(Kokkos_ENABLE_CUDA ${TESSERA_ENABLE_CUDA} CACHE BOOL "")
add_subdirectory("${kokkos_dir}" "${PROJECT_BINARY_DIR}/kokkos" SYSTEM)
