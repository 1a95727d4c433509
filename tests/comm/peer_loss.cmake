# cmake -DMPIEXEC=... -DNUMPROC_FLAG=-n -DPROGRAM=... -DTRANSPORT=automatic|mpi_only -DHOW=kill|hang|error -P peer_loss.cmake
# When the lost rank only hangs, MPI does not say which rank it waits for: the suspect is then -1.
# Three ranks, of which the last is lost; --enable-recovery keeps mpiexec from ending the others. Both survivors must name it
# within a few seconds.
execute_process(COMMAND ${MPIEXEC} ${NUMPROC_FLAG} 3 --oversubscribe --allow-run-as-root --bind-to none --enable-recovery ${PROGRAM} ${TRANSPORT} ${HOW}
                OUTPUT_VARIABLE out ERROR_VARIABLE err TIMEOUT 30 RESULT_VARIABLE result)
set(named "2 after ([0-9]+) ms: [a-z_]+ number [0-9]+ [^\n]*bytes[^\n]*rank 2 \\(host")
if(TRANSPORT STREQUAL "mpi_only" AND HOW STREQUAL "hang")
  set(named "-1 after ([0-9]+) ms: [a-z_]+ number [0-9]+ [^\n]*bytes[^\n]*did not take part")
endif()
foreach(rank IN ITEMS 0 1)
  if(NOT out MATCHES "rank ${rank}: lost ${named}")
    message(FATAL_ERROR "rank ${rank} did not report the loss of rank 2 (mpiexec: ${result}):\n${out}\n${err}")
  endif()
  if(CMAKE_MATCH_1 GREATER 5000)
    message(FATAL_ERROR "rank ${rank} reported the loss only after ${CMAKE_MATCH_1} ms:\n${out}")
  endif()
endforeach()
message("${out}")
