# Writes the modulefiles of both languages; also as a script: cmake -DOUT=DIR -DVERSION=0.2.0 -DDEPENDS="openmpi/4.1;hdf5/1.14" -P ModuleText.cmake
function(tessera_write_modulefiles out version depends)
  set(PROJECT_VERSION "${version}")
  set(TESSERA_MODULE_DEPENDS_LUA "")
  set(TESSERA_MODULE_DEPENDS_TCL "")
  foreach(module IN LISTS depends)
    string(APPEND TESSERA_MODULE_DEPENDS_LUA "depends_on(\"${module}\")\n")
    string(APPEND TESSERA_MODULE_DEPENDS_TCL
           "if { [info exists env(LMOD_VERSION)] } { depends-on ${module} } else { prereq ${module} }\n")
  endforeach()
  set(templates "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../modules")
  configure_file("${templates}/tessera.lua.in" "${out}/tessera/${version}.lua" @ONLY)
  configure_file("${templates}/tessera.tcl.in" "${out}/tessera/${version}" @ONLY)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  tessera_write_modulefiles("${OUT}" "${VERSION}" "${DEPENDS}")
endif()
