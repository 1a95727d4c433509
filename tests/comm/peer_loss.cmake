# cmake "-DMPIEXEC=mpiexec ... -n" [-DKEEP=keep_rank.sh] -DPROGRAM=... -DTRANSPORT=automatic|mpi_only|two_level -DHOW=kill|hang|error|any_phase -P peer_loss.cmake
# When the lost rank only hangs, MPI does not say which rank it waits for: the suspect is then -1.
# Three ranks, of which the last is lost; mpiexec does not end the others. Both survivors must name it
# within a few seconds.
# In two levels ranks 1 and 2 are a node: rank 1 sees the end of rank 2, and rank 0 learns at the deadline that a rank is missing.
separate_arguments(MPIEXEC)
set(environment)
if(TRANSPORT STREQUAL "two_level")
  set(environment ${CMAKE_COMMAND} -E env TESSERA_SIMULATED_NODES=1,2)
endif()
# Killed or stopped at different times: an operation takes about a millisecond, so that the phase differs. Both survivors end in time;
# the one on the same node may wait for a message of the other node, which does not name the lost rank.
if(HOW STREQUAL "any_phase")
  foreach(what IN ITEMS kill_after:0 kill_after:900 kill_after:2900 stop_after:300 stop_after:2300)
    execute_process(COMMAND ${environment} ${MPIEXEC} 3 ${KEEP} ${PROGRAM} ${TRANSPORT} ${what}
                    OUTPUT_VARIABLE out ERROR_VARIABLE err TIMEOUT 30 RESULT_VARIABLE result)
    foreach(rank IN ITEMS 0 1)
      if(NOT out MATCHES "rank ${rank}: lost (2|-1) after ([0-9]+) ms: [a-z_]+ number [0-9]+ [^\n]*bytes" OR CMAKE_MATCH_2 GREATER 5000)
        message(FATAL_ERROR "${what}: rank ${rank} did not report the loss of rank 2 in time (mpiexec: ${result}):\n${out}\n${err}")
      endif()
    endforeach()
    if(NOT out MATCHES "lost 2 after")
      list(APPEND unnamed ${what})
    endif()
    message("${what}\n${out}")
  endforeach()
  list(LENGTH unnamed count)
  if(count GREATER 2)
    message(FATAL_ERROR "rank 2 was named by nobody after ${unnamed}")
  endif()
  return()
endif()
execute_process(COMMAND ${environment} ${MPIEXEC} 3 ${KEEP} ${PROGRAM} ${TRANSPORT} ${HOW}
                OUTPUT_VARIABLE out ERROR_VARIABLE err TIMEOUT 30 RESULT_VARIABLE result)
set(known "2 after ([0-9]+) ms: [a-z_]+ number [0-9]+ [^\n]*bytes[^\n]*rank 2 \\(host")
set(unknown "-1 after ([0-9]+) ms: [a-z_]+ number [0-9]+ [^\n]*bytes[^\n]*did not take part")
foreach(rank IN ITEMS 0 1)
  set(named "${known}")
  if((NOT TRANSPORT STREQUAL "automatic" AND HOW STREQUAL "hang") OR (TRANSPORT STREQUAL "two_level" AND rank EQUAL 0))
    set(named "${unknown}")
  endif()
  if(NOT out MATCHES "rank ${rank}: lost ${named}")
    message(FATAL_ERROR "rank ${rank} did not report the loss of rank 2 (mpiexec: ${result}):\n${out}\n${err}")
  endif()
  if(CMAKE_MATCH_1 GREATER 5000)
    message(FATAL_ERROR "rank ${rank} reported the loss only after ${CMAKE_MATCH_1} ms:\n${out}")
  endif()
endforeach()
message("${out}")
