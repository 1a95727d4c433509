# What TESSERA_ARCH=auto means on this machine: a value for -march= by the lines of /proc/cpuinfo, or none.
#
# An explicit level instead of -march=native: objects in a shared compiler cache then never outlive the machine they suit.
function(tessera_detect_arch result cpuinfo)
  set(${result} "none" PARENT_SCOPE)
  if(CMAKE_CROSSCOMPILING OR NOT EXISTS "${cpuinfo}")
    return()
  endif()
  file(STRINGS "${cpuinfo}" flags REGEX "^(flags|Features)" LIMIT_COUNT 1)
  string(APPEND flags " ")
  set(level "none")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(level "x86-64-v2")
    if(flags MATCHES " avx2 " AND flags MATCHES " fma " AND flags MATCHES " bmi2 " AND flags MATCHES " f16c ")
      set(level "x86-64-v3")
      if(flags MATCHES " avx512f " AND flags MATCHES " avx512bw " AND flags MATCHES " avx512vl " AND flags MATCHES " avx512dq ")
        set(level "x86-64-v4")
      endif()
    endif()
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64" AND flags MATCHES " atomics " AND flags MATCHES " dcpop ")
    set(level "armv8.2-a")          # Neoverse N1: Graviton 2, Altra
    if(flags MATCHES " sve2 ")
      set(level "armv9-a")          # Neoverse V2: Grace
    elseif(flags MATCHES " sve ")
      set(level "armv8.2-a+sve")    # Neoverse V1, A64FX
    endif()
  endif()
  set(${result} "${level}" PARENT_SCOPE)
endfunction()
