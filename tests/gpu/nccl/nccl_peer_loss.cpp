/// Started by peer_loss.cmake under mpiexec: the last rank dies between two operations on the
/// device, or (argument "blocks") hangs in a call of NCCL that never returns; all others, and that
/// one, must end within the deadline, with the exit code for it, whatever they wait in. Each prints
/// "rank <r>: exit <code>: <message>", the one that hangs its log and its flight record.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "fake_device.hpp"
#include "fake_nccl.hpp"
#include "tessera/comm/base/flight_recorder.hpp"
#include "tessera/comm/compose/device_collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/core/error.hpp"
#include "tessera/topology/mpi_session.hpp"

namespace {

using namespace tessera;
using namespace std::chrono_literals;

/// Stage 3's traffic: the host waits for kernels behind a gather, as training does, then for a
/// reduction.
void run_steps(comm::Collectives& comm, memory::Queue& compute, bool dies) {
  constexpr std::int64_t shard = 1000;
  auto const memory = comm.allocate("test.flat", memory::Purpose::weights,
                                    static_cast<std::size_t>(shard * comm.size()) * sizeof(float));
  memory::TensorView const flat(memory.get(), Dtype::fp32, {shard * comm.size()});
  for (int step = 0;; ++step) {
    if (dies && step == 3 && comm.rank() == comm.size() - 1) kill(getpid(), SIGKILL);
    comm.all_gather(flat, {shard, shard, 0}, compute.record()).order_before(compute);
    compute.record().wait("a step's kernels", 60s);
    comm.wait(comm.reduce_scatter(flat, {shard, shard, 0}, flat.rows(comm.rank() * shard, shard),
                                  memory::WriteMode::overwrite, compute.record()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  topology::MpiSession const session(argc, argv);
  test::FakeDevice const device;
  int code = 1;
  bool const blocks = argc > 1 && std::string_view(argv[1]) == "blocks";
  auto const& info = session.info();
  if (blocks && info.rank == info.world_size - 1) test::nccl_faults().blocks_at = 7;
  if (blocks) comm::FlightRecorder::of_process().set_destination("flight_record", info.rank);
  try {
    auto const comm =
        comm::make_device(comm::make_mpi(session, 60s), 1500ms, comm::DeviceTransport::nccl);
    auto const compute = memory::make_stream_queue("compute");
    run_steps(*comm, *compute, !blocks);
  } catch (Error const& error) {
    code = static_cast<int>(error.code());
    std::printf("rank %d: exit %d: %s\n", info.rank, code, error.what());
  }
  std::fflush(stdout);
  _exit(code);
}
