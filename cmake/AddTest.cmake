# tessera_add_test(<layer>/<name>.test.cpp [NP 1 2 4] [LABELS ...] [LIBS ...] [TIMEOUT s])
#
# A test executable per file, named <layer>.<name>. The file is in tests/<layer>, or in the folder there that has the name of the part
# whose source it tests. NP runs it under mpiexec once per rank count (label np<N>); without NP it runs as one process. Every test has a time limit; labels are the layer, np<N> and what LABELS adds (slow, gpu, e2e, threads, mpi).

# The tests that the thread sanitizer runs: label threads.
add_custom_target(thread_tests)
# The tests that a second MPI runs: label mpi.
add_custom_target(mpi_suite)

# The number of cores a rank may use in a test: two ranks on two cores, one OpenMP thread each.
function(tessera_add_test file)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "NP;NODES;LABELS;LIBS")
  string(REGEX REPLACE "/.*" "" layer "${file}")
  cmake_path(GET file FILENAME base)
  string(REGEX REPLACE "^(.*)\\.test\\.cpp$" "${layer}.\\1" name "${base}")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set(sanitizer)
  if(TESSERA_SANITIZE)  # instrumented code runs several times slower; the MPI library's own leaks are not ours
    math(EXPR arg_TIMEOUT "5 * ${arg_TIMEOUT}")
    set(asan handle_sigbus=0)                  # a program that handles the signal does so itself
    if(arg_NP OR arg_NODES)
      string(APPEND asan ":detect_leaks=0")    # MPI unloads its components: reports of their leaks have no name to suppress
    endif()
    set(sanitizer "ASAN_OPTIONS=${asan}"
                  "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/leaks_of_libraries.txt:print_suppressions=0"
                  "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/races_of_libraries.txt:ignore_noninstrumented_modules=1:halt_on_error=1:exitcode=66")
  endif()
  file(GLOB found "${PROJECT_SOURCE_DIR}/tests/${layer}/${base}" "${PROJECT_SOURCE_DIR}/tests/${layer}/*/${base}")
  list(LENGTH found count)
  if(NOT count EQUAL 1)
    message(FATAL_ERROR "test ${file}: ${count} files have this name: ${found}")
  endif()
  add_executable(test.${name} "${found}")
  target_include_directories(test.${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/${layer}")   # fixtures of the layer
  if("threads" IN_LIST arg_LABELS)
    add_dependencies(thread_tests test.${name})
  endif()
  if("mpi" IN_LIST arg_LABELS)
    add_dependencies(mpi_suite test.${name})
  endif()
  set_target_properties(test.${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/bin")
  target_link_libraries(test.${name} PRIVATE tessera_${layer} tessera_flags ${arg_LIBS})
  if(NOT layer STREQUAL kernels)  # a third of the time to compile; tests of kernels have loops of kernels in them
    target_compile_options(test.${name} PRIVATE $<$<CONFIG:Release>:-O1> $<$<CONFIG:RelWithDebInfo>:-O0>)  # -O0: sanitizers
  endif()
  # Only where it is read: the path of this checkout in a compiler call hides it from a shared compiler cache.
  file(GLOB fixtures "${PROJECT_SOURCE_DIR}/tests/${layer}/*.hpp")
  foreach(source IN LISTS fixtures ITEMS "${found}")
    file(STRINGS "${source}" uses_data REGEX TESSERA_TEST_DATA LIMIT_COUNT 1)
    if(uses_data)
      target_compile_definitions(test.${name} PRIVATE TESSERA_TEST_DATA="${PROJECT_SOURCE_DIR}/tests")
    endif()
  endforeach()
  if(arg_NP OR arg_NODES)
    target_link_libraries(test.${name} PRIVATE tessera_test_main_mpi)
    foreach(np IN LISTS arg_NP)
      add_test(NAME ${name}.np${np}
               COMMAND ${TESSERA_MPIEXEC} ${np} $<TARGET_FILE:test.${name}>)
      set_tests_properties(${name}.np${np} PROPERTIES LABELS "${layer};np${np};${arg_LABELS}" TIMEOUT ${arg_TIMEOUT}
                           PROCESSORS ${np} ENVIRONMENT "OMP_NUM_THREADS=1;OMP_PROC_BIND=false;${sanitizer}")
    endforeach()
    foreach(nodes IN LISTS arg_NODES)  # "2,1": simulated nodes of two ranks and one rank
      string(REPLACE "," "+" sum "${nodes}")
      math(EXPR np "${sum}")
      string(REPLACE "," "_" label "${nodes}")
      add_test(NAME ${name}.nodes_${label}
               COMMAND ${TESSERA_MPIEXEC} ${np} $<TARGET_FILE:test.${name}>)
      set_tests_properties(${name}.nodes_${label} PROPERTIES LABELS "${layer};np${np};${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} PROCESSORS ${np}
                           ENVIRONMENT "OMP_NUM_THREADS=1;OMP_PROC_BIND=false;TESSERA_SIMULATED_NODES=${nodes};${sanitizer}")
    endforeach()
  else()
    target_link_libraries(test.${name} PRIVATE tessera_test_main)
    add_test(NAME ${name} COMMAND test.${name})
    set(threads 2)
    if(TESSERA_SANITIZE STREQUAL thread)  # it cannot see that OpenMP's library, which is not instrumented, orders its threads
      set(threads 1)
    endif()
    set_tests_properties(${name} PROPERTIES LABELS "${layer};${arg_LABELS}" TIMEOUT ${arg_TIMEOUT}
                         ENVIRONMENT "OMP_NUM_THREADS=${threads};OMP_PROC_BIND=false;OMP_WAIT_POLICY=passive;${sanitizer}")
  endif()
endfunction()
