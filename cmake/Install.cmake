# What `cmake --install` puts in place. The tree may be moved afterwards: run paths are relative ($ORIGIN) and the package file
# finds everything from its own position.
include(CMakePackageConfigHelpers)

get_property(layers GLOBAL PROPERTY TESSERA_LAYERS)
foreach(layer IN LISTS layers ITEMS all)
  install(TARGETS tessera_${layer} EXPORT TesseraTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endforeach()
if(TESSERA_ENABLE_CUDA)
  set_target_properties(tessera_cuda_driver PROPERTIES EXPORT_NAME cuda_driver)
  install(TARGETS tessera_cuda_driver EXPORT TesseraTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(TARGETS tessera-train tessera RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(PROGRAMS "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/zero-to-fp32" DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp")
install(FILES docs/reference/manifest.schema.json DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera)
install(DIRECTORY configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera/configs)
foreach(system slurm pbs)
  install(DIRECTORY ${system}/ DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera/${system} USE_SOURCE_PERMISSIONS)
endforeach()
install(DIRECTORY "${PROJECT_BINARY_DIR}/manual/" DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
foreach(program tessera tessera-train zero-to-fp32)
  install(FILES "${PROJECT_BINARY_DIR}/manual/completion" DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ${program})
endforeach()
install(FILES cmake/Makefile.check DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera RENAME Makefile)
include(ModuleFiles)
install(FILES LICENSE README.md CHANGELOG.md CONTRIBUTING.md CITATION.cff DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.json"
        PATTERN quickstart EXCLUDE PATTERN __pycache__ EXCLUDE)
file(RELATIVE_PATH data_from_docs "${CMAKE_INSTALL_FULL_DOCDIR}" "${CMAKE_INSTALL_FULL_DATADIR}/tessera")
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/docs-links")
foreach(system slurm pbs)   # pages link to ../../slurm
  file(CREATE_LINK "${data_from_docs}/${system}" "${PROJECT_BINARY_DIR}/docs-links/${system}" SYMBOLIC)
  install(FILES "${PROJECT_BINARY_DIR}/docs-links/${system}" DESTINATION ${CMAKE_INSTALL_DOCDIR})
endforeach()
install(EXPORT TesseraTargets NAMESPACE Tessera:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)

# A Kokkos built with Tessera is installed next to it: libraries, headers and package file, not its scripts. Its own install rules fill a
# folder of the build tree, from which the rest is taken; a lock keeps two installations at the same time out of each other's way. An
# external Kokkos is found again by the package file.
if(TESSERA_KOKKOS_TREE)
  if(TESSERA_KOKKOS_BUILD)
    install(CODE "file(LOCK \"${TESSERA_KOKKOS_TREE}.lock\")
                  execute_process(COMMAND \"${CMAKE_COMMAND}\" -E env --unset=DESTDIR
                                          \"${CMAKE_COMMAND}\" --install \"${TESSERA_KOKKOS_BUILD}\" --prefix \"${TESSERA_KOKKOS_TREE}\"
                                  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)")
  endif()
  foreach(folder include ${CMAKE_INSTALL_LIBDIR})
    install(DIRECTORY "${TESSERA_KOKKOS_TREE}/${folder}/" DESTINATION ${folder})
  endforeach()
  if(TESSERA_KOKKOS_BUILD)
    install(CODE "file(LOCK \"${TESSERA_KOKKOS_TREE}.lock\" RELEASE)")
  endif()
endif()

# Where the package file finds HDF5; a static one needs the libraries that its compiler wrapper names.
list(GET HDF5_C_LIBRARIES 0 TESSERA_HDF5_LIBRARY)
if(TARGET "${TESSERA_HDF5_LIBRARY}")
  get_target_property(TESSERA_HDF5_LIBRARY "${TESSERA_HDF5_LIBRARY}" LOCATION)
endif()
cmake_path(GET TESSERA_HDF5_LIBRARY PARENT_PATH TESSERA_HDF5_DIRECTORY)
cmake_path(GET TESSERA_HDF5_LIBRARY FILENAME TESSERA_HDF5_FILE)
set(TESSERA_HDF5_STATIC_DEPENDENCIES "")
if(TESSERA_HDF5_LIBRARY MATCHES "\\.a$")
  list(SUBLIST HDF5_C_LIBRARIES 1 -1 TESSERA_HDF5_STATIC_DEPENDENCIES)
endif()

configure_package_config_file(cmake/TesseraConfig.cmake.in "${PROJECT_BINARY_DIR}/TesseraConfig.cmake"
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/TesseraConfig.cmake" "${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake"
              cmake/FindTesseraArrow.cmake cmake/FindTesseraGemm.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)
