/// Started by tests/comm/peer_loss.cmake under mpiexec: the last rank dies or leaves in the middle
/// of a run, the others must learn so within seconds, whatever they wait in. Each survivor prints
/// "rank <r>: lost <suspect> after <ms> ms: <message>".
///   peer_loss_program automatic|mpi_only|two_level kill|hang|error
///   peer_loss_program two_level kill_after:MICROSECONDS|stop_after:MICROSECONDS
/// The latter two from outside, in whatever phase the last rank then is.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/comm/compose/two_level.hpp"
#include "tessera/core/error.hpp"

namespace {

using namespace tessera;
using namespace std::chrono_literals;

void lose(std::string const& how) {
  if (how == "kill") kill(getpid(), SIGKILL);
  if (how == "hang") std::this_thread::sleep_for(4s);  // longer than the timeout of the others
  throw InternalError("this rank fails by itself");
}

/// A child ends or stops this process, and ends it later in any case.
void lose_after(int signal_number, std::chrono::microseconds time) {
  pid_t const parent = getpid();
  if (fork() != 0) return;
  usleep(static_cast<useconds_t>(time.count()));
  kill(parent, signal_number);
  sleep(signal_number == SIGSTOP ? 3 : 0);
  kill(parent, SIGKILL);
  _exit(0);
}

/// A training loop's traffic; the last rank is lost in step 3.
void run_steps(comm::Collectives& comm, std::string const& how) {
  constexpr std::int64_t shard = 100'000;
  auto const memory = comm.allocate("test.flat", memory::Purpose::weights,
                                    static_cast<std::size_t>(shard * comm.size()) * 4);
  memory::TensorView const flat(memory.get(), Dtype::fp32, {shard * comm.size()});
  for (int step = 0;; ++step) {
    comm.wait(comm.reduce_scatter(flat, {shard, shard, 0}, flat.rows(comm.rank() * shard, shard),
                                  memory::WriteMode::overwrite, {}));
    bool const is_lost = step == 3 && comm.rank() == comm.size() - 1;
    if (auto const colon = how.find(':'); is_lost && colon != std::string::npos)
      lose_after(how.starts_with("stop") ? SIGSTOP : SIGKILL,
                 std::chrono::microseconds(std::stoi(how.substr(colon + 1))));
    else if (is_lost)
      lose(how);
    comm.wait(comm.all_gather(flat, {shard, shard, 0}, {}));
    (void)comm::agree(comm, true);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  std::string const transport = argv[1], how = argv[2];
  topology::MpiSession const session(argc, argv);
  comm::Deadline const deadline =
      how == "hang" || transport == "two_level"
          ? 1500ms
          : 120'000ms;  // a death on the same node is seen long before the deadline
  auto const start = std::chrono::steady_clock::now();
  int result = 1;
  try {
    auto comm = comm::make_mpi(
        session, deadline,
        transport == "mpi_only" ? comm::NodeTransport::mpi_only : comm::NodeTransport::automatic);
    if (transport == "two_level")
      comm = comm::make_two_level(std::move(comm), session.nodes(), {comm::Levels::two, {}});
    run_steps(*comm, how);
  } catch (PeerLostError const& error) {
    auto const ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                        std::chrono::steady_clock::now() - start)
                        .count();
    std::printf("rank %d: lost %d after %d ms: %s\n", session.info().rank, error.rank,
                static_cast<int>(ms), error.what());
    result = 0;
  } catch (InternalError const&) {
    result = 0;
  }
  std::fflush(stdout);
  _exit(result);
}
