/// Started by peer_loss.cmake under mpiexec: the last rank dies between two operations on the
/// device; the others must end within the deadline, with the exit code for it, whatever they wait
/// in. Each prints "rank <r>: exit <code>: <message>".
#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "fake_device.hpp"
#include "tessera/comm/device_collectives.hpp"
#include "tessera/comm/host_collectives.hpp"
#include "tessera/core/error.hpp"
#include "tessera/topology/mpi_session.hpp"

namespace {

using namespace tessera;
using namespace std::chrono_literals;

/// Stage 3's traffic: the host waits for kernels behind a gather, as training does, then for a
/// reduction.
void run_steps(comm::Collectives& comm, memory::Queue& compute) {
  constexpr std::int64_t shard = 1000;
  auto const memory = comm.allocate("test.flat", memory::Purpose::weights,
                                    static_cast<std::size_t>(shard * comm.size()) * sizeof(float));
  memory::TensorView const flat(memory.get(), Dtype::fp32, {shard * comm.size()});
  for (int step = 0;; ++step) {
    if (step == 3 && comm.rank() == comm.size() - 1) kill(getpid(), SIGKILL);
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
  try {
    auto const comm =
        comm::make_device(comm::make_mpi(session, 60s), 1500ms, comm::DeviceTransport::nccl);
    auto const compute = memory::make_stream_queue("compute");
    run_steps(*comm, *compute);
  } catch (Error const& error) {
    code = static_cast<int>(error.code());
    std::printf("rank %d: exit %d: %s\n", session.info().rank, code, error.what());
  }
  std::fflush(stdout);
  _exit(code);
}
