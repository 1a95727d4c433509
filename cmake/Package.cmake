# cpack -G TGZ: an archive that runs wherever it is unpacked. cpack -G DEB: a Debian package whose dependencies dpkg-shlibdeps finds.
# Build for the oldest processor that shall run it: -DTESSERA_ARCH=x86-64-v3.
set(CPACK_PACKAGE_NAME tessera)
set(CPACK_PACKAGE_VENDOR "Tessera")
set(CPACK_PACKAGE_CONTACT "Tessera maintainers <maintainers@tessera.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "ZeRO training of language models under MPI, with HDF5 checkpoints")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "openmpi-bin")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "slurm-client, lmod | environment-modules, bash-completion")
set(CPACK_PROJECT_CONFIG_FILE "${PROJECT_SOURCE_DIR}/cmake/PackagePrefix.cmake")
set(CPACK_GENERATOR TGZ)
find_program(TESSERA_DPKG dpkg)
if(TESSERA_DPKG)
  list(APPEND CPACK_GENERATOR DEB)
endif()
include(CPack)

add_custom_target(check COMMAND tessera selftest --dir "${PROJECT_BINARY_DIR}" DEPENDS tessera tessera-train USES_TERMINAL VERBATIM
                  COMMENT "The self-test with the programs of this build")
add_custom_target(installcheck COMMAND "${CMAKE_INSTALL_PREFIX}/bin/tessera" selftest USES_TERMINAL VERBATIM
                  COMMENT "The self-test with the programs in ${CMAKE_INSTALL_PREFIX}")
