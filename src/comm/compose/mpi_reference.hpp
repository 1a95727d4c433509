#pragma once
/// The collective operations of the MPI library itself, blocking, as a baseline.

#include <string>

#include "host/mpi_comm.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera::comm::detail {

class MpiReference {
 public:
  /// The ranks of @p group. Collective over the session.
  MpiReference(topology::MpiSession const& session, topology::RankGroup const& group);

  /// Whether MPI has a type for this: sums of fp32 only, anything else that only moves data.
  static bool supports(std::string const& operation, Dtype dtype);
  /// Buffers of @p bytes; an operation that has shards takes the first part of the smaller one.
  void run(std::string const& operation, Dtype dtype, std::size_t bytes, void* in, void* out);

 private:
  MpiComm world_, comm_;
};

}  // namespace tessera::comm::detail
