/// The control segment with one thread per rank, and the liveness check of processes
/// (peer_liveness.hpp) with a child process.
#include "host/node_control.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "host/loopback_transport.hpp"
#include "tessera/comm/base/collectives.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/process.hpp"

namespace tessera::comm::detail {
namespace {

using namespace std::chrono_literals;

/// Who waits: the communication thread, or a caller that polls or yields.
enum class Waiter { thread, polling_caller, yielding_caller };

/// All ranks of a group in one process, each with a mapping of the control segment.
class NodeControlTest : public ::testing::TestWithParam<Waiter> {
 protected:
  static constexpr int ranks = 3;

  void SetUp() override {
    auto const bytes = NodeControl::file_bytes(ranks);
    auto const file = SharedFile::create(bytes);
    auto const waiting = GetParam() == Waiter::polling_caller ? Waiting::poll : Waiting::yield;
    for (int r = 0; r < ranks; ++r)
      controls_.push_back(std::make_unique<NodeControl>(Mapping(file, bytes, Access::read_write),
                                                        Group{r, ranks}, peers_, *transport_, 2s,
                                                        waiting));
  }
  void on_all_ranks(std::function<void(int, NodeControl&)> const& body) {
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        std::optional<SynchronousCalls> synchronous;
        if (GetParam() != Waiter::thread) synchronous.emplace();
        body(r, *controls_[at(r)]);
      });
    for (auto& thread : threads) thread.join();
  }
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  static Operation barrier(std::uint64_t sequence) {
    Operation o;
    o.sequence = sequence;
    return o;
  }

  PeerLiveness peers_{
      std::vector<PeerLiveness::Peer>(ranks, PeerLiveness::Peer{"node", this_process(), true})};
  std::unique_ptr<Transport> transport_ = make_loopback_transport();
  std::vector<std::unique_ptr<NodeControl>> controls_;
};

/// Each rank writes its staging half, and after the phase reads those of the others, a thousand
/// times: a missing wait would show as an old value.
TEST_P(NodeControlTest, WhatWasWrittenBeforeAPhaseIsReadAfterIt) {
  std::atomic<int> wrong{0};
  on_all_ranks([&](int rank, NodeControl& control) {
    for (std::uint64_t i = 1; i <= 1000; ++i) {
      int const half = control.next_half();
      auto const value = static_cast<std::byte>((i * 3 + at(rank)) % 251);
      control.staging(Rank(rank), half)[NodeControl::half_bytes - 1] = value;
      PostedOperation own;
      own.operation = barrier(i);
      own.offset_bytes = i * 10 + at(rank);
      control.post(own);
      for (int q = 0; q < ranks; ++q) {
        wrong += control.posted(q).offset_bytes != i * 10 + at(q);
        wrong += control.staging(Rank(q), half)[NodeControl::half_bytes - 1] !=
                 static_cast<std::byte>((i * 3 + at(q)) % 251);
      }
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST_P(NodeControlTest, DifferentOperationsAreAnErrorOnEveryRank) {
  std::atomic<int> errors{0};
  on_all_ranks([&](int rank, NodeControl& control) {
    PostedOperation own;
    own.operation = barrier(1);
    own.operation.numel = rank == 2 ? 5 : 4;
    try {
      control.post(own);
    } catch (InternalError const& error) {
      errors += std::string(error.what()).find("different collectives") != std::string::npos;
    }
  });
  EXPECT_EQ(errors, ranks);
}

TEST_P(NodeControlTest, ARankThatLeavesFailsTheOthersImmediately) {
  std::atomic<int> lost{0};
  auto const start = std::chrono::steady_clock::now();
  on_all_ranks([&](int rank, NodeControl& control) {
    if (rank == 1) return control.leave();
    try {
      control.synchronize(barrier(1));
    } catch (PeerLostError const& error) {
      lost += error.rank == 1;
    }
  });
  EXPECT_EQ(lost, 2);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1500ms) << "before the deadline";
}

TEST_P(NodeControlTest, AMissingRankIsNamedAfterTheDeadline) {
  std::atomic<int> lost{0};
  on_all_ranks([&](int rank, NodeControl& control) {
    if (rank == 2) return;
    try {
      control.synchronize(barrier(1));
    } catch (PeerLostError const& error) {
      lost += error.rank == 2;
    }
  });
  EXPECT_EQ(lost, 2);
}

/// Processor time of this thread.
double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// The last rank comes long after the others have stopped polling.
TEST_P(NodeControlTest, ALongWaitSleepsAndIsWoken) {
  std::atomic<int> idle{0};
  on_all_ranks([&](int rank, NodeControl& control) {
    double const before = cpu_seconds();
    // The others wait for as long, and their processor time is measured.
    if (rank == 1) std::this_thread::sleep_for(400ms);
    control.synchronize(barrier(1));
    idle += cpu_seconds() - before < 0.2;
  });
  EXPECT_EQ(idle, ranks);
}

std::string name_of(::testing::TestParamInfo<Waiter> const& info) {
  return info.param == Waiter::thread           ? "Thread"
         : info.param == Waiter::polling_caller ? "PollingCaller"
                                                : "YieldingCaller";
}
INSTANTIATE_TEST_SUITE_P(All, NodeControlTest,
                         ::testing::Values(Waiter::thread, Waiter::polling_caller,
                                           Waiter::yielding_caller),
                         name_of);

TEST(PeerLiveness, SeesThatAProcessHasEnded) {
  int release[2];
  ASSERT_EQ(pipe(release), 0);
  pid_t const child = fork();
  if (child == 0) {
    char byte;
    close(release[1]);
    _exit(read(release[0], &byte, 1) == 0 ? 0 : 1);
  }
  close(release[0]);
  auto id = this_process();
  PeerLiveness const self({{"here", id, true}});
  EXPECT_TRUE(self.alive(0));
  EXPECT_EQ(self.first_dead(), -1);
  auto const stat = process_stat(child);
  ASSERT_TRUE(stat);
  PeerLiveness const peers({{"here", id, true},
                            {"here", {child, stat->started}, true},
                            {"here", {child, stat->started + 1}, true},
                            {"elsewhere", {child, stat->started}, false}});
  EXPECT_EQ(peers.first_dead(), -1);
  close(release[1]);
  siginfo_t end{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &end, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(peers.alive(1)) << "a zombie has ended";
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(peers.alive(1));
  EXPECT_TRUE(peers.alive(2)) << "another process than the one that reported";
  EXPECT_TRUE(peers.alive(3)) << "not observable from this node";
  EXPECT_EQ(peers.first_dead(), 1);
  EXPECT_EQ(peers.describe(1), concat("rank 1 (host here, process ", child, ")"));
}

}  // namespace
}  // namespace tessera::comm::detail
