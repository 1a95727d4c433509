# Modulefiles for Lmod (Lua) and environment-modules (Tcl), man pages, bash completion. Nothing in them names the install prefix.
option(TESSERA_INSTALL_MODULEFILES "Install modulefiles to share/modulefiles (Spack and EasyBuild write their own)" ON)
set(TESSERA_MODULE_DEPENDS "" CACHE STRING "Modules that Tessera's modulefile loads, for example openmpi/4.1.4;hdf5/1.14 (names differ from site to site)")

if(TESSERA_INSTALL_MODULEFILES)
  set(TESSERA_MODULE_DEPENDS_LUA "")
  set(TESSERA_MODULE_DEPENDS_TCL "")
  foreach(module IN LISTS TESSERA_MODULE_DEPENDS)
    string(APPEND TESSERA_MODULE_DEPENDS_LUA "depends_on(\"${module}\")\n")
    string(APPEND TESSERA_MODULE_DEPENDS_TCL
           "if { [info exists env(LMOD_VERSION)] } { depends-on ${module} } else { prereq ${module} }\n")
  endforeach()
  configure_file(modules/tessera.lua.in "${PROJECT_BINARY_DIR}/modulefiles/tessera/${PROJECT_VERSION}.lua" @ONLY)
  configure_file(modules/tessera.tcl.in "${PROJECT_BINARY_DIR}/modulefiles/tessera/${PROJECT_VERSION}" @ONLY)
  install(DIRECTORY "${PROJECT_BINARY_DIR}/modulefiles/" DESTINATION ${CMAKE_INSTALL_DATADIR}/modulefiles)
endif()
