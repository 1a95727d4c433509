# cmake -DMPIEXEC=... -DNUMPROC_FLAG=-n -DPROGRAM=... -P peer_loss.cmake
# Three ranks, of which the last dies; --enable-recovery keeps mpiexec from ending the others. A hang ends in the test's time limit.
execute_process(COMMAND ${MPIEXEC} ${NUMPROC_FLAG} 3 --oversubscribe --allow-run-as-root --bind-to none --enable-recovery ${PROGRAM}
                OUTPUT_VARIABLE out ERROR_VARIABLE err TIMEOUT 50 RESULT_VARIABLE result)
foreach(rank IN ITEMS 0 1)
  if(NOT out MATCHES "rank ${rank}: exit 69: NCCL all_gather number 7 \\(1000 fp32 elements, 4000 bytes per rank\\) on rank ${rank} \\([^)]+\\) did not finish within 1\\.5 s")
    message(FATAL_ERROR "rank ${rank} did not report the loss (mpiexec: ${result}):\n${out}\n${err}")
  endif()
endforeach()
message("${out}")
