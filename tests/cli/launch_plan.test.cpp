#include "launch/launch_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/run_program.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

LaunchRequest two_hosts() {
  LaunchRequest r;
  r.hosts =
      parse_hostfile("# nodes\nworker-1 slots=4\n\nworker-2 slots=4  # the other\n", "hostfile");
  r.program = {"tessera-train", "--do_train"};
  return r;
}

std::string line(LaunchRequest const& r) { return shell_line(launch_line(r)); }

TEST(Hostfile, IsReadAndChecked) {
  EXPECT_EQ(two_hosts().hosts,
            (std::vector<HostSlots>{{"worker-1", {0, 1, 2, 3}}, {"worker-2", {0, 1, 2, 3}}}));
  for (char const* bad : {"worker-1", "worker-1 slots=", "worker-1 slots=0", "worker-1 slots=x",
                          "worker-1 slots=2x", "", "# none", "a slots=1\na slots=1"})
    EXPECT_THROW(parse_hostfile(bad, "hostfile"), DataError) << bad;
}

TEST(Hostfile, AMarkOfUtf8IsSkipped) {
  EXPECT_EQ(parse_hostfile("\xEF\xBB\xBFworker-1 slots=1\n", "hostfile")[0].host, "worker-1");
}

TEST(Launch, HydraTakesOneListOfHosts) {
  auto r = two_hosts();
  r.mpirun = "mpiexec.mpich";
  r.launcher = topology::Launcher::hydra;
  r.as_root = true;
  EXPECT_EQ(line(r), "mpiexec.mpich -hosts worker-1:4,worker-2:4 -np 8 tessera-train --do_train");
  r.include = "worker-1:1,3@worker-2";
  EXPECT_EQ(line(r),
            "mpiexec.mpich -hosts worker-1:2,worker-2:4 -np 2 -env CUDA_VISIBLE_DEVICES 1,3 "
            "tessera-train --do_train : -np 4 tessera-train --do_train");
}

TEST(Launch, PalsTakesOneNumberOfRanksPerNode) {
  auto r = two_hosts();
  r.mpirun = "mpiexec";
  r.launcher = topology::Launcher::pals;
  r.launcher_options = {"--cpu-bind", "depth"};
  EXPECT_EQ(line(r),
            "mpiexec --cpu-bind depth -n 8 --ppn 4 --hosts worker-1,worker-2 tessera-train "
            "--do_train");
  r.include = "worker-1:1,3@worker-2:1,3";
  r.launcher_options.clear();
  EXPECT_EQ(line(r),
            "mpiexec -n 4 --ppn 2 --hosts worker-1,worker-2 --env CUDA_VISIBLE_DEVICES=1,3 "
            "tessera-train --do_train");
  r.include = "worker-1:1,3@worker-2";
  EXPECT_THROW(line(r), UsageError);
}

TEST(Hostfile, AUserOfAHostIsNoPartOfItsName) {
  LaunchRequest r;
  r.hosts = parse_hostfile("alice@worker-1 slots=2\nalice@worker-2 slots=2\n", "hostfile");
  r.program = {"tessera-train"};
  r.user = "alice";
  EXPECT_EQ(line(r), "mpirun -np 4 --host worker-1:2,worker-2:2 tessera-train");
  r.include = "worker-2:1";
  EXPECT_EQ(line(r), "mpirun -np 1 --host worker-2:1 -x CUDA_VISIBLE_DEVICES=1 tessera-train");
  r.user = "bob";
  EXPECT_THAT([&] { line(r); },
              testing::ThrowsMessage<UsageError>(testing::AllOf(
                  testing::HasSubstr("alice@worker-2"), testing::HasSubstr("logs in as bob"),
                  testing::HasSubstr("~/.ssh/config"))));
  r.launcher = topology::Launcher::srun;  // a step of srun has the user of the job
  EXPECT_EQ(line(r),
            "srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist=worker-2 "
            "--export=ALL,CUDA_VISIBLE_DEVICES=1 tessera-train");
  for (char const* bad : {"@a slots=1", "a@ slots=1", "a@b@c slots=1", "fe80::1 slots=1",
                          "a:22 slots=1", "a,b slots=1", "x@a slots=1\ny@a slots=1"})
    EXPECT_THROW(parse_hostfile(bad, "hostfile"), DataError) << bad;
}

/// tests/oracles/launcher.py: what DeepSpeed's own functions choose, and what they refuse.
TEST(Hosts, AreThoseThatDeepSpeedChooses) {
  auto const document = ConfigTree::read(TESSERA_TEST_DATA "/oracles/launcher.json");
  for (auto const& c : document.at("cases").as_array()) {
    std::string const text = c.at("text").as_string();
    if (text.find("16abc") != std::string::npos) continue;  // read there as 16, refused here
    SCOPED_TRACE(c.dump());
    auto const choose = [&] {
      LaunchRequest r;
      r.hosts = parse_hostfile(text, "hostfile");
      r.include = c.get_string("include", "");
      r.exclude = c.get_string("exclude", "");
      if (auto const n = c.get_int("nodes", -1); n > 0) r.num_nodes = static_cast<int>(n);
      if (auto const n = c.get_int("gpus", -1); n > 0) r.num_gpus = static_cast<int>(n);
      return chosen_hosts(r);
    };
    if (c.at("result").is_string()) {
      EXPECT_THROW(choose(), Error);
      continue;
    }
    std::vector<HostSlots> expected;
    for (auto const& host : c.at("result").as_array()) {
      expected.push_back({host.as_array()[0].as_string(), {}});
      for (auto const& slot : host.as_array()[1].as_array())
        expected.back().slots.push_back(static_cast<int>(slot.as_int()));
    }
    EXPECT_EQ(choose(), expected);
  }
}

TEST(LaunchLine, OnThisMachine) {
  LaunchRequest r;
  r.program = {"tessera-train", "--prompt", "it's"};
  EXPECT_EQ(line(r), "mpirun -np 1 tessera-train --prompt 'it'\\''s'");
  r.num_gpus = 8;
  EXPECT_EQ(line(r), "mpirun -np 8 tessera-train --prompt 'it'\\''s'");
}

TEST(LaunchLine, OverAHostfile) {
  auto r = two_hosts();
  EXPECT_EQ(line(r), "mpirun -np 8 --host worker-1:4,worker-2:4 tessera-train --do_train");
  r.num_nodes = 1, r.num_gpus = 2;
  EXPECT_EQ(line(r), "mpirun -np 2 --host worker-1:2 tessera-train --do_train");
  r.num_nodes = 3;
  EXPECT_THROW(line(r), UsageError);
}

TEST(LaunchLine, IncludeAndExclude) {
  auto r = two_hosts();
  r.include = "worker-2";
  EXPECT_EQ(line(r), "mpirun -np 4 --host worker-2:4 tessera-train --do_train");
  r.include = "worker-1@worker-2:0,2";
  EXPECT_EQ(line(r),
            "mpirun -np 4 --host worker-1:4 tessera-train --do_train : -np 2 --host worker-2:2 -x "
            "CUDA_VISIBLE_DEVICES=0,2 tessera-train --do_train");
  r.include.clear();
  r.exclude = "worker-1@worker-2:3";
  EXPECT_EQ(line(r), "mpirun -np 3 --host worker-2:3 tessera-train --do_train");
  for (char const* bad :
       {"worker-3", "worker-1:4", "worker-1:x", "worker-1@", "worker-1:", "worker-1@worker-2"}) {
    r.exclude = bad;
    EXPECT_THROW(line(r), UsageError) << bad;
  }
  r.exclude = r.include = "worker-1";
  EXPECT_THROW(line(r), UsageError);
}

TEST(LaunchLine, InsideASlurmJob) {
  LaunchRequest r;
  r.program = {"tessera-train"};
  r.launcher = topology::Launcher::srun;
  EXPECT_EQ(line(r), "srun tessera-train");
  r.num_nodes = 2, r.num_gpus = 4;
  EXPECT_EQ(line(r), "srun --nodes=2 --ntasks=8 --ntasks-per-node=4 tessera-train");
  r = two_hosts();
  r.launcher = topology::Launcher::srun;
  r.include = "worker-2:1,3";
  EXPECT_EQ(line(r),
            "srun --nodes=1 --ntasks=2 --ntasks-per-node=2 --nodelist=worker-2 "
            "--export=ALL,CUDA_VISIBLE_DEVICES=1,3 tessera-train --do_train");
  r.include = "worker-1@worker-2:0,2";
  EXPECT_THROW(line(r), UsageError);
}

}  // namespace
}  // namespace tessera::cli
