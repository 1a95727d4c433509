/// Counts the MPI calls of a process by MPI's profiling interface, for LD_PRELOAD: at the end each
/// rank writes "NAME CALLS BYTES" lines to TESSERA_MPI_CALLS/rank_N.txt. The bytes are those that
/// the call takes from this rank, except that all-to-alls count one part per rank.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

namespace {

struct Counts {
  long calls = 0, bytes = 0;
};
std::mutex mutex;
std::map<std::string, Counts> counts;

void count(char const* name, long elements = 0, MPI_Datatype type = MPI_BYTE, MPI_Comm comm = {}) {
  int size = 0, ranks = 1;
  PMPI_Type_size(type, &size);
  if (comm != MPI_Comm{}) PMPI_Comm_size(comm, &ranks);
  std::lock_guard const lock(mutex);
  auto& c = counts[name];
  ++c.calls;
  c.bytes += elements * size * ranks;
}

}  // namespace

extern "C" {

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* out) {
  count("MPI_Comm_dup");
  return PMPI_Comm_dup(comm, out);
}
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* out) {
  count("MPI_Comm_split");
  return PMPI_Comm_split(comm, color, key, out);
}
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* out) {
  count("MPI_Comm_split_type");
  return PMPI_Comm_split_type(comm, type, key, info, out);
}
int MPI_Allgather(void const* in, int n, MPI_Datatype type, void* out, int m, MPI_Datatype to,
                  MPI_Comm comm) {
  count("MPI_Allgather", n, type);
  return PMPI_Allgather(in, n, type, out, m, to, comm);
}
int MPI_Iallgather(void const* in, int n, MPI_Datatype type, void* out, int m, MPI_Datatype to,
                   MPI_Comm comm, MPI_Request* request) {
  count("MPI_Iallgather", m, to);
  return PMPI_Iallgather(in, n, type, out, m, to, comm, request);
}
int MPI_Allreduce(void const* in, void* out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  count("MPI_Allreduce", n, type);
  return PMPI_Allreduce(in, out, n, type, op, comm);
}
int MPI_Iallreduce(void const* in, void* out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request) {
  count("MPI_Iallreduce", n, type);
  return PMPI_Iallreduce(in, out, n, type, op, comm, request);
}
int MPI_Bcast(void* data, int n, MPI_Datatype type, int root, MPI_Comm comm) {
  count("MPI_Bcast", n, type);
  return PMPI_Bcast(data, n, type, root, comm);
}
int MPI_Ibcast(void* data, int n, MPI_Datatype type, int root, MPI_Comm comm,
               MPI_Request* request) {
  count("MPI_Ibcast", n, type);
  return PMPI_Ibcast(data, n, type, root, comm, request);
}
int MPI_Ialltoall(void const* in, int n, MPI_Datatype type, void* out, int m, MPI_Datatype to,
                  MPI_Comm comm, MPI_Request* request) {
  count("MPI_Ialltoall", n, type, comm);
  return PMPI_Ialltoall(in, n, type, out, m, to, comm, request);
}
int MPI_Igather(void const* in, int n, MPI_Datatype type, void* out, int m, MPI_Datatype to,
                int root, MPI_Comm comm, MPI_Request* request) {
  count("MPI_Igather", n, type);
  return PMPI_Igather(in, n, type, out, m, to, root, comm, request);
}
int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  count("MPI_Ibarrier");
  return PMPI_Ibarrier(comm, request);
}
int MPI_Issend(void const* data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request* request) {
  count("MPI_Issend", n, type);
  return PMPI_Issend(data, n, type, to, tag, comm, request);
}

int MPI_Finalize() {
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (char const* const directory = std::getenv("TESSERA_MPI_CALLS")) {
    std::string const path = std::string(directory) + "/rank_" + std::to_string(rank) + ".txt";
    if (std::FILE* const out = std::fopen(path.c_str(), "w")) {
      for (auto const& [name, c] : counts)
        std::fprintf(out, "%s %ld %ld\n", name.c_str(), c.calls, c.bytes);
      std::fclose(out);
    }
  }
  return PMPI_Finalize();
}
}
