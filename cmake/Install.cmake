# What `cmake --install` puts in place. The tree may be moved afterwards: run paths are relative ($ORIGIN) and the package file
# finds everything from its own position.
include(CMakePackageConfigHelpers)

get_property(layers GLOBAL PROPERTY TESSERA_LAYERS)
foreach(layer IN LISTS layers)
  install(TARGETS tessera_${layer} EXPORT TesseraTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endforeach()
install(TARGETS tessera-train tessera RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(PROGRAMS "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/zero-to-fp32" DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp")
install(FILES docs/reference/manifest.schema.json DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera)
install(DIRECTORY configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera/configs)
install(DIRECTORY slurm/ DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera/slurm USE_SOURCE_PERMISSIONS)
install(DIRECTORY "${PROJECT_BINARY_DIR}/manual/" DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
foreach(program tessera tessera-train zero-to-fp32)
  install(FILES "${PROJECT_BINARY_DIR}/manual/completion" DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ${program})
endforeach()
install(FILES cmake/Makefile.check DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera RENAME Makefile)
include(ModuleFiles)
install(FILES LICENSE README.md CHANGELOG.md CONTRIBUTING.md CITATION.cff DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.json"
        PATTERN quickstart EXCLUDE PATTERN __pycache__ EXCLUDE)
install(EXPORT TesseraTargets NAMESPACE Tessera:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)

# A Kokkos built with Tessera is installed next to it (its own install rules); the package file finds an external one again.
configure_package_config_file(cmake/TesseraConfig.cmake.in "${PROJECT_BINARY_DIR}/TesseraConfig.cmake"
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/TesseraConfig.cmake" "${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake"
              cmake/FindTesseraGemm.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)
