# One static library per layer, lowest first. A layer sees the headers of the layers it declares and of no other, so an include
# that goes up is a plain compile error. The order of declaration in src/CMakeLists.txt is the order of the layers.
#
#   tessera_add_layer(zero USES core memory kernels comm optim PRIVATE_LIBS Kokkos::kokkos)
#
# Sources are all of src/<layer>/**/*.cpp. Headers that other layers may include are "tessera/<layer>/x.hpp": the public ones, which are
# installed, in include/tessera/<layer>, the others in src/<layer>/shared. SEES names parts of lower layers whose private headers the layer
# includes, as they do.

# The include view of a layer ("core") or part ("zero/layout"): links to the folders of its headers, so that the compiler finds them as
# "tessera/<folder>/x.hpp", and no others.
function(tessera_make_view view folder)
  cmake_path(GET folder PARENT_PATH parent)
  file(MAKE_DIRECTORY "${view}/public/tessera/${parent}" "${view}/shared/tessera/${parent}")
  file(CREATE_LINK "${PROJECT_SOURCE_DIR}/include/tessera/${folder}" "${view}/public/tessera/${folder}" SYMBOLIC)
  file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}/${folder}/shared" "${view}/shared/tessera/${folder}" SYMBOLIC)
endfunction()

function(tessera_add_layer layer)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "USES;SEES;PRIVATE_LIBS;DEFINITIONS")
  foreach(used IN LISTS arg_USES)
    if(NOT TARGET tessera_${used})
      message(FATAL_ERROR "layer ${layer} uses ${used}, which is not below it")
    endif()
  endforeach()

  set(view "${PROJECT_BINARY_DIR}/layer-include/${layer}")
  tessera_make_view("${view}" ${layer})
  file(GLOB headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/tessera/${layer}/*.hpp")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${layer}/*.cpp")
  add_library(tessera_${layer} STATIC ${sources})
  add_library(Tessera::${layer} ALIAS tessera_${layer})
  set_target_properties(tessera_${layer} PROPERTIES EXPORT_NAME ${layer} LINKER_LANGUAGE CXX)
  target_include_directories(tessera_${layer} PUBLIC "$<BUILD_INTERFACE:${view}/public;${view}/shared>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>"
                                              PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/${layer}")
  foreach(part IN LISTS arg_SEES)
    target_include_directories(tessera_${layer} PRIVATE "$<TARGET_PROPERTY:tessera_${part},INCLUDE_DIRECTORIES>")
  endforeach()
  target_compile_features(tessera_${layer} PUBLIC cxx_std_20)
  list(TRANSFORM arg_USES PREPEND tessera_)
  target_link_libraries(tessera_${layer} PUBLIC ${arg_USES} PRIVATE $<BUILD_INTERFACE:tessera_flags> ${arg_PRIVATE_LIBS})
  target_compile_definitions(tessera_${layer} PRIVATE ${arg_DEFINITIONS})
  set_property(GLOBAL APPEND PROPERTY TESSERA_LAYERS ${layer})
  set_property(GLOBAL PROPERTY TESSERA_LAYER_FOLDER_${layer} "${layer}")
  set_property(GLOBAL PROPERTY TESSERA_LAYER_HEADERS_${layer} "${headers}")
  set_property(GLOBAL PROPERTY TESSERA_LAYER_USES_${layer} "${arg_USES}")
endfunction()

# A layer in parts, each a static library of its own with the same rule inside the layer: a part sees the headers, public and
# private, of the parts it declares with ON and of no other.
#
#   tessera_add_part(checkpoint interchange ON format USES core memory optim PRIVATE_LIBS ZLIB::ZLIB)
#   tessera_join_parts(checkpoint)   # tessera_checkpoint: all parts
#
# Sources: src/<layer>/<part>/**/*.cpp. Headers for other layers, "tessera/<layer>/<part>/x.hpp": include/tessera/<layer>/<part> (public) and
# src/<layer>/<part>/shared. Private headers: src/<layer>/<part>/**/*.hpp ("<part>/x.hpp"). DEVICE names the sources that include Kokkos,
# ALL for every one: they are compiled for the device.
function(tessera_add_part layer part)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "ON;USES;PRIVATE_LIBS;DEFINITIONS;DEVICE")
  set(name ${layer}_${part})
  foreach(used IN LISTS arg_USES)
    if(NOT TARGET tessera_${used})
      message(FATAL_ERROR "part ${part} of layer ${layer} uses ${used}, which is not below it")
    endif()
  endforeach()
  set(view "${PROJECT_BINARY_DIR}/layer-include/${name}")
  tessera_make_view("${view}" ${layer}/${part})
  file(MAKE_DIRECTORY "${view}/private")
  file(CREATE_LINK "${CMAKE_CURRENT_SOURCE_DIR}/${layer}/${part}" "${view}/private/${part}" SYMBOLIC)
  file(GLOB headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/tessera/${layer}/${part}/*.hpp")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${layer}/${part}/*.cpp")

  if(arg_DEVICE STREQUAL "ALL")
    tessera_compile_for_device(${sources})
  else()
    list(TRANSFORM arg_DEVICE REPLACE "(.+)" "${layer}/${part}/\\1.cpp")
    tessera_compile_for_device(${arg_DEVICE})
  endif()

  add_library(tessera_${name} STATIC ${sources})
  add_library(Tessera::${name} ALIAS tessera_${name})
  set_target_properties(tessera_${name} PROPERTIES EXPORT_NAME ${name} LINKER_LANGUAGE CXX)
  target_include_directories(tessera_${name} PUBLIC "$<BUILD_INTERFACE:${view}/public;${view}/shared>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>"
                                             PRIVATE "${view}/private")
  foreach(lower IN LISTS arg_ON)
    if(NOT TARGET tessera_${layer}_${lower})
      message(FATAL_ERROR "part ${part} of layer ${layer} is built on ${lower}, which is not below it")
    endif()
    target_link_libraries(tessera_${name} PUBLIC tessera_${layer}_${lower})
    target_include_directories(tessera_${name} PRIVATE "${PROJECT_BINARY_DIR}/layer-include/${layer}_${lower}/private")
  endforeach()
  target_compile_features(tessera_${name} PUBLIC cxx_std_20)
  list(TRANSFORM arg_USES PREPEND tessera_)
  target_link_libraries(tessera_${name} PUBLIC ${arg_USES} PRIVATE $<BUILD_INTERFACE:tessera_flags> ${arg_PRIVATE_LIBS})
  target_compile_definitions(tessera_${name} PRIVATE ${arg_DEFINITIONS})
  set_property(GLOBAL APPEND PROPERTY TESSERA_PARTS_${layer} ${name})
  set_property(GLOBAL APPEND PROPERTY TESSERA_LAYERS ${name})
  set_property(GLOBAL PROPERTY TESSERA_LAYER_FOLDER_${name} "${layer}/${part}")
  set_property(GLOBAL PROPERTY TESSERA_LAYER_HEADERS_${name} "${headers}")
  set_property(GLOBAL PROPERTY TESSERA_LAYER_USES_${name} "${arg_USES}")
endfunction()

function(tessera_join_parts layer)
  get_property(parts GLOBAL PROPERTY TESSERA_PARTS_${layer})
  add_library(tessera_${layer} INTERFACE)
  add_library(Tessera::${layer} ALIAS tessera_${layer})
  set_target_properties(tessera_${layer} PROPERTIES EXPORT_NAME ${layer})
  list(TRANSFORM parts PREPEND tessera_)
  target_link_libraries(tessera_${layer} INTERFACE ${parts})
  set_property(GLOBAL APPEND PROPERTY TESSERA_LAYERS ${layer})
endfunction()

# Tessera::Tessera: every layer, for other projects.
function(tessera_add_library_of_layers)
  get_property(layers GLOBAL PROPERTY TESSERA_LAYERS)
  list(TRANSFORM layers PREPEND tessera_)
  add_library(tessera_all INTERFACE)
  add_library(Tessera::Tessera ALIAS tessera_all)
  set_target_properties(tessera_all PROPERTIES EXPORT_NAME Tessera)
  target_link_libraries(tessera_all INTERFACE ${layers})
endfunction()
