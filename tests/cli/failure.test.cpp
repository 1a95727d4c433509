#include "recovery/failure.hpp"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

std::vector<HostSlots> nodes(std::initializer_list<char const*> names) {
  std::vector<HostSlots> out;
  for (char const* name : names) out.push_back({name, {0, 1}});
  return out;
}

AttemptEnd end_with(int code, std::string messages = "") {
  AttemptEnd end;
  end.launcher_code = code;
  end.launcher_messages = std::move(messages);
  end.nodes = nodes({"n1", "n2"});
  end.steps = 3;
  return end;
}

ConfigTree failed_status(int code, std::string const& reason) {
  ConfigTree status;
  status.set("state", code == 75  ? "stopped_early"
                      : code == 0 ? "done"
                                  : "failed")
      .set("exit_code", code)
      .set("reason", reason);
  return status;
}

TEST(FailureOf, NothingWhereTheRunHasEndedOrWasStopped) {
  EXPECT_FALSE(failure_of(end_with(0)));
  for (int const code : {0, 75}) {
    auto end = end_with(1);
    end.status = failed_status(code, "");
    EXPECT_FALSE(failure_of(end));
    EXPECT_EQ(exit_code_of(end), code);
  }
}

TEST(FailureOf, ReadsTheMessagesOfLaunchers) {
  auto const mpirun = failure_of(end_with(
      137,
      "mpirun noticed that process rank 3 with PID 0 on node n2 exited on signal 9 (Killed)."));
  ASSERT_TRUE(mpirun);
  EXPECT_EQ(mpirun->rank, 3);
  EXPECT_EQ(mpirun->host, "n2");
  EXPECT_EQ(mpirun->kind, "killed by signal 9 (Killed)");
  EXPECT_FALSE(mpirun->node_lost);
  auto const srun = failure_of(end_with(139, "srun: error: n1: task 0: Segmentation fault\n"));
  EXPECT_EQ(srun->host, "n1");
  EXPECT_EQ(srun->kind, "killed by signal 11 (Segmentation fault)");
  auto const pals = failure_of(end_with(
      143,
      "n1.cm.site.org: rank 0 died from signal 15\nn2.cm.site.org: rank 3 died from signal 9\n"));
  EXPECT_EQ(pals->rank, 3);
  EXPECT_EQ(pals->host, "n2");
  EXPECT_EQ(pals->kind, "killed by signal 9 (Killed)");
  auto const hydra = failure_of(end_with(
      9,
      "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 22169 RUNNING AT n2\n"
      "=   EXIT CODE: 9\n=   CLEANING UP REMAINING PROCESSES\n"
      "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n"));
  EXPECT_EQ(hydra->host, "n2");
  EXPECT_EQ(hydra->kind, "killed by signal 9 (Killed)");
  EXPECT_EQ(hydra->exit_code, 137);
  for (char const* text :
       {"srun: error: Node failure on n2\n", "n2.cm.site.org: shepherd died from signal 9\n",
        "ping RPC timeout from n2.cm.site.org after 120s\n",
        "srun: error: Task launch for StepId=3.0 failed on node n2: Communication connection "
        "failure\n",
        "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[1,0],0] on node "
        "n1\n  Remote daemon: [[1,0],1] on node n2\n"}) {
    auto const lost = failure_of(end_with(137, text));
    EXPECT_TRUE(lost->node_lost) << text;
    EXPECT_EQ(lost->host, "n2") << text;
  }
  EXPECT_EQ(failure_of(end_with(1))->kind, "exit code 1 of the launcher");
}

TEST(FailureOf, StatusNamesTheSuspect) {
  auto end = end_with(69);
  end.status = failed_status(69, "rank 2 was lost");
  end.status->set("suspect_rank", 2).set("suspect_host", "another name of it");
  auto failure = failure_of(end);
  EXPECT_EQ(failure->host, "n2");
  EXPECT_EQ(failure->rank, 2);
  EXPECT_TRUE(failure->recoverable);
  EXPECT_FALSE(failure->node_lost);
  end.status->set("reason", "node n2 sent no heartbeat for 30 s");
  EXPECT_TRUE(failure_of(end)->node_lost);
}

TEST(FailureOf, SilentCorruptionExcludesTheNodeOrEndsTheRun) {
  auto end = end_with(69);
  end.status = failed_status(69, "silent corruption at step 7: rank 2 has other weights");
  end.status->set("suspect_rank", 2).set("suspect_host", "n2");
  end.status->set("corruption", ConfigTree::object().set("step", 7).set("action", "exclude"));
  auto failure = failure_of(end);
  EXPECT_EQ(failure->kind, "silent corruption");
  EXPECT_EQ(failure->host, "n2");
  EXPECT_TRUE(failure->excludes_node);
  EXPECT_TRUE(failure->recoverable);
  end.status->set("corruption", ConfigTree::object().set("action", "stop"));
  failure = failure_of(end);
  EXPECT_FALSE(failure->excludes_node);
  EXPECT_FALSE(failure->recoverable);
  end.status->set("corruption", ConfigTree::object().set("action", "exclude"));
  end.status->erase("suspect_rank");
  end.status->erase("suspect_host");
  EXPECT_FALSE(failure_of(end)->excludes_node) << "nobody knows which rank it was";
  end.status->set("reason", "rank 1 was lost").set("suspect_rank", 1);
  EXPECT_FALSE(failure_of(end)->excludes_node) << "an earlier warning does not count";
}

TEST(FailureOf, TellsWhichNodesWereSlow) {
  auto end = end_with(69);
  end.status = failed_status(69, "rank 0 was lost");
  ConfigTree::Array slow;
  slow.push_back(ConfigTree::object().set("rank", 3).set("node", "?").set("factor", 1.8));
  end.status->set("stragglers", slow);
  auto const failure = failure_of(end);
  ASSERT_EQ(failure->slow_nodes.size(), 1u);
  EXPECT_EQ(failure->slow_nodes[0].host, "n2");
  EXPECT_EQ(failure->slow_nodes[0].factor, 1.8);
}

TEST(FailureOf, WhatAnotherAttemptCannotFixIsFinal) {
  for (int const code : {64, 65, 74, 78}) {
    auto end = end_with(code);
    end.status = failed_status(code, "why");
    EXPECT_FALSE(failure_of(end)->recoverable) << code;
    EXPECT_EQ(failure_of(end)->exit_code, code);
  }
  auto end = end_with(70);
  end.status = failed_status(70, "out of memory");
  EXPECT_TRUE(failure_of(end)->recoverable);
  end.steps = 0;
  EXPECT_FALSE(failure_of(end)->recoverable);
  EXPECT_FALSE(failure_of(end_with(127))->recoverable);
}

TEST(FailureOf, AHangIsALostPeer) {
  auto end = end_with(143);
  end.ended_because = "hang: no sign of life";
  auto const failure = failure_of(end);
  EXPECT_EQ(failure->exit_code, 69);
  EXPECT_EQ(failure->kind, end.ended_because);
  end.launcher_code = 0;
  EXPECT_TRUE(failure_of(end));
}

}  // namespace
}  // namespace tessera::cli
