/// Collectives inside a node against MPI's own, in one process, interleaved; one JSON line each.
///
///   mpirun -np 2 build/host/bin/bench.collectives [KiB ... = 1 to 256 MiB]
///
/// Medians over the repetitions of the slowest rank's time, bus bandwidth (N-1)/N bytes / time, and
/// the ratio of the medians; the best times as well, for machines with other work. fp32, buffers of
/// the given size on every rank, touched before: "shared" from allocate(), "private" ordinary ones.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"

namespace {

using namespace tessera;
using Clock = std::chrono::steady_clock;

/// Fewer of large buffers, more of small ones.
int repetitions_of(std::size_t bytes) {
  return bytes >= std::size_t{128} << 20 ? 5 : bytes >= std::size_t{1} << 20 ? 11 : 101;
}

/// Seconds of the slowest rank, started together.
double seconds(std::function<void()> const& body) {
  MPI_Barrier(MPI_COMM_WORLD);
  auto const start = Clock::now();
  body();
  double own = std::chrono::duration<double>(Clock::now() - start).count(), slowest = 0;
  MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

struct Contest {
  char const* operation;
  char const* own_name;
  std::function<void()> own, mpi;
};

void run(Contest const& contest, std::size_t bytes, int rank, int ranks) {
  std::vector<double> own, mpi;
  for (int i = -2; i < repetitions_of(bytes); ++i) {
    double const a = seconds(contest.own), b = seconds(contest.mpi);
    if (i < 0) continue;  // warm-up
    own.push_back(a);
    mpi.push_back(b);
  }
  if (rank != 0) return;
  double const moved = static_cast<double>(bytes) * (ranks - 1) / ranks / 1e9;
  double const a = median(own), b = median(mpi);
  double const best_a = *std::min_element(own.begin(), own.end()),
               best_b = *std::min_element(mpi.begin(), mpi.end());
  std::printf(
      "{\"benchmark\": \"collectives\", \"operation\": \"%s\", \"transport\": \"%s\", \"ranks\": "
      "%d, \"kib\": %.0f, "
      "\"own_ms\": %.4f, \"mpi_ms\": %.4f, \"own_gbps\": %.2f, \"mpi_gbps\": %.2f, \"ratio\": "
      "%.2f, \"own_best_ms\": %.4f, \"mpi_best_ms\": %.4f}\n",
      contest.operation, contest.own_name, ranks, static_cast<double>(bytes) / (1 << 10), a * 1e3,
      b * 1e3, moved / a, moved / b, b / a, best_a * 1e3, best_b * 1e3);
  std::fflush(stdout);
}

/// @param in, out buffers for the own collectives: from allocate(), or ordinary ones
void run_size(comm::Collectives& comm, char const* name, std::size_t bytes, void* in, void* out) {
  std::int64_t const shard = static_cast<std::int64_t>(bytes / sizeof(float)) / comm.size();
  std::int64_t const numel = shard * comm.size();
  memory::Buffer const mpi_in("bench.mpi_in", memory::Purpose::workspace, bytes),
      mpi_out("bench.mpi_out", memory::Purpose::workspace, bytes);
  memory::TensorView const whole(in, Dtype::fp32, {numel}), part(out, Dtype::fp32, {shard});
  for (void* data : {in, out, mpi_in.data(), mpi_out.data()})
    std::fill_n(static_cast<float*>(data), numel, 1.0f);
  comm::StridedShards const blocks{shard, shard, 0};
  auto const count = static_cast<int>(shard);
  auto* const mpi_whole = static_cast<float*>(mpi_in.data());
  auto* const mpi_part = static_cast<float*>(mpi_out.data());

  run({"reduce_scatter", name,
       [&] {
         comm.wait(comm.reduce_scatter(whole, blocks, part, memory::WriteMode::overwrite, {}));
       },
       [&] {
         MPI_Reduce_scatter_block(mpi_whole, mpi_part, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
       }},
      bytes, comm.rank(), comm.size());
  run({"all_gather", name, [&] { comm.wait(comm.all_gather(whole, blocks, {})); },
       [&] {
         MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, mpi_whole, count, MPI_FLOAT, MPI_COMM_WORLD);
       }},
      bytes, comm.rank(), comm.size());
  run({"all_reduce", name, [&] { comm.wait(comm.all_reduce(whole, comm::ReduceOp::max, {})); },
       [&] {
         MPI_Allreduce(MPI_IN_PLACE, mpi_whole, static_cast<int>(numel), MPI_FLOAT, MPI_MAX,
                       MPI_COMM_WORLD);
       }},
      bytes, comm.rank(), comm.size());
  run({"broadcast", name, [&] { comm.wait(comm.broadcast(whole, 0, {})); },
       [&] { MPI_Bcast(mpi_whole, static_cast<int>(numel), MPI_FLOAT, 0, MPI_COMM_WORLD); }},
      bytes, comm.rank(), comm.size());
}

}  // namespace

int main(int argc, char** argv) {
  topology::MpiSession const session(argc, argv);
  comm::SynchronousCalls const synchronous;  // each call is waited for, as MPI's
  auto const comm = comm::make_mpi(session, std::chrono::minutes(1));
  std::vector<std::size_t> sizes;  // KiB
  for (int i = 1; i < argc; ++i) sizes.push_back(std::strtoul(argv[i], nullptr, 10));
  if (sizes.empty()) sizes = {1, 16, 64, 256, 1024, 4096, 16384, 65536, 262144};
  for (std::size_t const kib : sizes) {
    std::size_t const bytes = kib << 10;
    auto const in = comm->allocate("bench.in", memory::Purpose::workspace, bytes);
    auto const out = comm->allocate("bench.out", memory::Purpose::workspace, bytes);
    run_size(*comm, "shared", bytes, in.get(), out.get());
    memory::Buffer const ordinary_in("bench.in", memory::Purpose::workspace, bytes),
        ordinary_out("bench.out", memory::Purpose::workspace, bytes);
    run_size(*comm, "private", bytes, ordinary_in.data(), ordinary_out.data());
  }
  return 0;
}
