#pragma once
/// What tessera-train does besides training when `tessera` starts it on the ranks of a job.

#include <string>
#include <vector>

#include "tessera/topology/mpi_session.hpp"

namespace tessera::cli {

/// `tessera selftest --profile`: --measure_machine FILE DIRECTORY.
inline constexpr char const* measure_machine_word = "--measure_machine";
/// `tessera bench-comm`: --bench_comm OPTIONS, an object of JSON.
inline constexpr char const* bench_comm_word = "--bench_comm";

/// `tessera selftest --gpus`: --test_gpus DEVICE_MEMORY, of simulated devices; "" for GPUs.
inline constexpr char const* test_gpus_word = "--test_gpus";

/// True when the first word asks for one of these.
bool asks_for_rank_program(std::vector<std::string> const& words);

/// Runs it and returns the exit code; ends the job after an error of one rank. Collective.
int run_rank_program(topology::MpiSession& session, std::vector<std::string> const& words);

}  // namespace tessera::cli
