# TESSERA_ARCH=auto for processors that are not at hand, by what Linux says of them: cmake -DSOURCE=DIR -DWORK=DIR -P check_arch.cmake
include("${SOURCE}/cmake/DetectArch.cmake")
file(MAKE_DIRECTORY "${WORK}")

function(expect level processor line)
  set(CMAKE_SYSTEM_PROCESSOR "${processor}")
  file(WRITE "${WORK}/cpuinfo" "processor\t: 0\n${line}\n")
  tessera_detect_arch(found "${WORK}/cpuinfo")
  if(NOT found STREQUAL level)
    message(SEND_ERROR "${processor}, ${line}: ${found}, expected ${level}")
  endif()
endfunction()

expect(none aarch64 "Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid")                                                     # Cortex-A72
expect(armv8.2-a aarch64 "Features\t: fp asimd aes crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp ssbs")                 # Neoverse N1
expect(armv8.2-a aarch64 "Features\t: fp asimd aes crc32 atomics fphp asimdhp dcpop asimddp sve asimdfhm svei8mm svebf16")           # Neoverse V1
expect(armv8.2-a aarch64 "Features\t: fp asimd aes crc32 atomics fphp asimdhp dcpop asimddp sve asimdfhm dcpodp sve2 svei8mm svebf16 bf16")  # Grace
expect(none aarch64 "flags\t\t: fpu sse avx2 fma bmi2 f16c avx512f avx512bw avx512vl avx512dq")   # emulated on x86-64
expect(x86-64-v2 x86_64 "flags\t\t: fpu sse sse4_2 popcnt")
expect(x86-64-v3 x86_64 "flags\t\t: fpu avx avx2 fma bmi2 f16c lahf_lm")
expect(x86-64-v4 x86_64 "flags\t\t: fpu avx avx2 fma bmi2 f16c avx512f avx512dq avx512bw avx512vl")
