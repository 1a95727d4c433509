# Modulefiles for Lmod (Lua) and environment-modules (Tcl). Nothing in them names the install prefix.
include(ModuleText)
option(TESSERA_INSTALL_MODULEFILES "Install modulefiles to share/modulefiles (Spack and EasyBuild write their own)" ON)
set(TESSERA_MODULE_DEPENDS "" CACHE STRING "Modules that Tessera's modulefile loads, for example openmpi/4.1.4;hdf5/1.14 (names differ from site to site)")

if(TESSERA_INSTALL_MODULEFILES)
  tessera_write_modulefiles("${PROJECT_BINARY_DIR}/modulefiles" ${PROJECT_VERSION} "${TESSERA_MODULE_DEPENDS}")
  install(DIRECTORY "${PROJECT_BINARY_DIR}/modulefiles/" DESTINATION ${CMAKE_INSTALL_DATADIR}/modulefiles)
endif()
