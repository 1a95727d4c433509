#include "base/peer_liveness.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tessera/core/process.hpp"

namespace tessera::comm::detail {
namespace {

PeerLiveness::Peer here(ProcessId process) { return {"n1", process, true}; }

TEST(PeerLiveness, SeesThisProcess) {
  auto const own = this_process();
  EXPECT_EQ(own.pid, getpid());
  EXPECT_GT(own.started, 0);
  PeerLiveness const peers({here(own), {"n2", {1, 1}, false}});
  EXPECT_TRUE(peers.alive(0));
  EXPECT_TRUE(peers.alive(1)) << "of another node: not known to have ended";
  EXPECT_EQ(peers.first_dead(), -1);
  EXPECT_EQ(peers.rank_of_lost_node(), -1) << "without a session no node is watched";
  EXPECT_EQ(peers.describe(1), "rank 1 (host n2, process 1)");
}

/// A process has ended even as a zombie, before its parent asks for its status.
TEST(PeerLiveness, SeesTheEndOfAProcess) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  pid_t const child = fork();
  if (child == 0) {
    char byte = 0;
    _exit(static_cast<int>(read(fds[0], &byte, 1)) - 1);
  }
  PeerLiveness const unknown({here({child, 1})});
  EXPECT_TRUE(unknown.alive(0)) << "another start time: not observable from here";
  auto const state = process_stat(child);
  ASSERT_TRUE(state);
  PeerLiveness const peers({here(this_process()), here({child, state->started})});
  EXPECT_TRUE(peers.alive(1));
  ASSERT_EQ(write(fds[1], "x", 1), 1);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(peers.alive(1)) << "a zombie";
  EXPECT_EQ(peers.first_dead(), 1);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(peers.alive(1));
  close(fds[0]);
  close(fds[1]);
}

}  // namespace
}  // namespace tessera::comm::detail
