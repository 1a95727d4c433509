# Which GPUs the device code is for. Every architecture of the list gets machine code, the newest one also PTX, from which the driver
# makes code for devices that came later. Kokkos itself is compiled for one architecture; what its library holds (a handful of small
# kernels) reaches later devices through its PTX, so the lowest of the list is the right one for it.

# Sets `result` to the list that was asked for, ascending. Needs CUDAToolkit_VERSION.
function(tessera_wanted_architectures result)
  set(wanted "${TESSERA_CUDA_ARCHITECTURES}")
  if(wanted STREQUAL "auto")
    set(wanted 80 90)
    if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
      list(APPEND wanted 100)
    endif()
  endif()
  foreach(architecture IN LISTS wanted)
    if(NOT architecture MATCHES "^[0-9][0-9]+$")
      message(FATAL_ERROR "TESSERA_CUDA_ARCHITECTURES is '${TESSERA_CUDA_ARCHITECTURES}'; it must be auto or numbers such as 90 or 80;90")
    endif()
  endforeach()
  list(SORT wanted COMPARE NATURAL)
  list(REMOVE_DUPLICATES wanted)
  set(${result} "${wanted}" PARENT_SCOPE)
endfunction()

# Kokkos' name of an architecture; empty when Kokkos 5.0.2 has none.
function(tessera_kokkos_architecture result architecture)
  set(names 75 TURING75 80 AMPERE80 86 AMPERE86 87 AMPERE87 89 ADA89 90 HOPPER90 100 BLACKWELL100 120 BLACKWELL120)
  list(FIND names "${architecture}" at)
  set(name "")
  if(at GREATER_EQUAL 0)
    math(EXPR at "${at} + 1")
    list(GET names ${at} name)
  endif()
  set(${result} "${name}" PARENT_SCOPE)
endfunction()

# The list without what the Kokkos that was found cannot serve: refused when it was asked for, left out when it was `auto`.
function(tessera_architectures_for_kokkos result wanted kokkos_lowest)
  set(served "${wanted}")
  foreach(architecture IN LISTS wanted)
    if(architecture LESS kokkos_lowest)
      if(NOT TESSERA_CUDA_ARCHITECTURES STREQUAL "auto")
        message(FATAL_ERROR "TESSERA_CUDA_ARCHITECTURES asks for ${architecture}, and ${Kokkos_DIR} was compiled for ${kokkos_lowest}, which "
                            "does not run there; leave ${architecture} out, or give a Kokkos for ${architecture} (or none: then it is built here)")
      endif()
      list(REMOVE_ITEM served ${architecture})
    endif()
  endforeach()
  if(NOT served)
    set(served "${kokkos_lowest}")
  endif()
  set(${result} "${served}" PARENT_SCOPE)
endfunction()

# Machine code for all, PTX for the last, as CMAKE_CUDA_ARCHITECTURES says it.
function(tessera_architecture_flags result architectures)
  list(POP_BACK architectures newest)
  list(TRANSFORM architectures APPEND "-real")
  set(${result} ${architectures} ${newest} PARENT_SCOPE)
endfunction()
