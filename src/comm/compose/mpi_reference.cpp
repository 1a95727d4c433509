#include "compose/mpi_reference.hpp"

#include "tessera/core/error.hpp"

namespace tessera::comm::detail {
namespace {

bool reduces(std::string const& operation) { return operation.find("reduce") != std::string::npos; }

}  // namespace

MpiReference::MpiReference(topology::MpiSession const& session, topology::RankGroup const& group)
    : world_(session.world()), comm_(world_, group) {}

bool MpiReference::supports(std::string const& operation, Dtype dtype) {
  return dtype == Dtype::fp32 || !reduces(operation);
}

void MpiReference::run(std::string const& operation, Dtype dtype, std::size_t bytes, void* in,
                       void* out) {
  auto const type = dtype == Dtype::fp32 ? MPI_FLOAT : MPI_UINT16_T;
  int const numel = static_cast<int>(bytes / size_of(dtype)), shard = numel / comm_.size();
  MPI_Comm const comm = comm_.get();
  int result = MPI_ERR_OTHER;
  if (operation == "broadcast")
    result = MPI_Bcast(in, numel, type, 0, comm);
  else if (operation == "all_reduce")
    result = MPI_Allreduce(MPI_IN_PLACE, in, numel, type, MPI_SUM, comm);
  else if (operation == "reduce")
    result = MPI_Reduce(comm_.rank() == 0 ? MPI_IN_PLACE : in, in, numel, type, MPI_SUM, 0, comm);
  else if (operation == "reduce_scatter")
    result = MPI_Reduce_scatter_block(in, out, shard, type, MPI_SUM, comm);
  else if (operation == "all_gather")
    result = MPI_Allgather(MPI_IN_PLACE, 0, type, in, shard, type, comm);
  else if (operation == "all_to_all")
    result = MPI_Alltoall(in, shard, type, out, shard, type, comm);
  else if (operation == "scatter")
    result = MPI_Scatter(in, shard, type, out, shard, type, 0, comm);
  else if (operation == "gather")
    result = MPI_Gather(in, shard, type, out, shard, type, 0, comm);
  TESSERA_VALIDATE(result == MPI_SUCCESS, InternalError, "the MPI library's ", operation,
                   " failed with error ", result);
}

}  // namespace tessera::comm::detail
