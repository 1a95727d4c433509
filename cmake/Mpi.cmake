# MPI, and the launcher that belongs to it. Machines with several MPIs name theirs by the compiler wrapper (-DMPI_CXX_COMPILER=mpicxx.mpich) or by the
# prefix (-DMPI_HOME=PREFIX).
#   TESSERA_MPI_LIBRARY   "Open MPI", "MPICH" (also MPIs derived from it) or "unknown", from mpi.h
#   TESSERA_MPIEXEC       the command line that starts ranks in tests, up to the number of ranks
#   TESSERA_MPIEXEC_KEEP  the same; the launcher does not end the other ranks when one ends. With MPICH's, which always does, each rank must be
#                         started by TESSERA_KEEP_RANK
set(MPI_CXX_SKIP_MPICXX ON)   # the C interface only: the C++ bindings would link a library of their own into every file that includes mpi.h

# The launcher has the suffix of the wrapper and is in its folder; FindMPI would take the machine's default, of another MPI.
if(MPI_CXX_COMPILER AND NOT MPIEXEC_EXECUTABLE)
  find_program(wrapper NAMES "${MPI_CXX_COMPILER}" NO_CACHE)
  if(wrapper)
    cmake_path(GET wrapper PARENT_PATH folder)
    cmake_path(GET wrapper EXTENSION suffix)
    find_program(MPIEXEC_EXECUTABLE NAMES "mpiexec${suffix}" "mpirun${suffix}" PATHS "${folder}" NO_DEFAULT_PATH)
  endif()
endif()
find_package(MPI REQUIRED COMPONENTS CXX)

set(TESSERA_MPI_LIBRARY unknown)
foreach(folder IN LISTS MPI_CXX_INCLUDE_DIRS)
  if(EXISTS "${folder}/mpi.h")
    file(STRINGS "${folder}/mpi.h" macros REGEX "define +(OMPI_MAJOR_VERSION|MPICH_VERSION|MPICH_NUMVERSION)")
    if(macros MATCHES "OMPI_MAJOR_VERSION")
      set(TESSERA_MPI_LIBRARY "Open MPI")
    elseif(macros MATCHES "MPICH_")
      set(TESSERA_MPI_LIBRARY MPICH)
    endif()
  endif()
endforeach()

set(launcher unknown)
if(MPIEXEC_EXECUTABLE)
  execute_process(COMMAND "${MPIEXEC_EXECUTABLE}" --version OUTPUT_VARIABLE version ERROR_QUIET)
  if(version MATCHES "Open MPI|OpenRTE|PRRTE")
    set(launcher "Open MPI")
  elseif(version MATCHES "HYDRA|Intel")
    set(launcher MPICH)
  endif()
endif()
set(TESSERA_MPIEXEC "${MPIEXEC_EXECUTABLE}")
set(TESSERA_MPIEXEC_KEEP "${MPIEXEC_EXECUTABLE}")
set(TESSERA_KEEP_RANK)
if(launcher STREQUAL "Open MPI")
  list(APPEND TESSERA_MPIEXEC --oversubscribe --allow-run-as-root --bind-to none)
  list(APPEND TESSERA_MPIEXEC_KEEP --enable-recovery --oversubscribe --allow-run-as-root --bind-to none)
elseif(launcher STREQUAL "MPICH")
  set(TESSERA_KEEP_RANK "${PROJECT_SOURCE_DIR}/tests/support/keep_rank.sh")
endif()
list(APPEND TESSERA_MPIEXEC "${MPIEXEC_NUMPROC_FLAG}")
list(APPEND TESSERA_MPIEXEC_KEEP "${MPIEXEC_NUMPROC_FLAG}")
message(STATUS "Tessera: MPI is ${TESSERA_MPI_LIBRARY}, its launcher ${MPIEXEC_EXECUTABLE}")
if(NOT launcher STREQUAL TESSERA_MPI_LIBRARY AND NOT launcher STREQUAL unknown AND NOT TESSERA_MPI_LIBRARY STREQUAL unknown)
  message(WARNING "${MPIEXEC_EXECUTABLE} is a launcher of ${launcher}, and the MPI that was found is ${TESSERA_MPI_LIBRARY}: each process that it "
                  "starts would be a world of one rank; name the launcher of ${TESSERA_MPI_LIBRARY} with -DMPIEXEC_EXECUTABLE=PROGRAM")
endif()
