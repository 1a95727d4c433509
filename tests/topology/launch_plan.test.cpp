#include "tessera/topology/launch_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::topology {
namespace {

LaunchRequest two_hosts() {
  LaunchRequest r;
  r.hosts = parse_hostfile("# nodes\nworker-1 slots=4\n\nworker-2 slots=4  # the other\n", "hostfile");
  r.program = {"tessera-train", "--do_train"};
  return r;
}

std::string line(LaunchRequest const& r) { return shell_line(launch_line(r)); }

TEST(Hostfile, IsReadAndChecked) {
  EXPECT_EQ(two_hosts().hosts, (std::vector<HostSlots>{{"worker-1", {0, 1, 2, 3}}, {"worker-2", {0, 1, 2, 3}}}));
  for (char const* bad : {"worker-1", "worker-1 slots=", "worker-1 slots=0", "worker-1 slots=x", "worker-1 slots=2 3", "", "# none", "a slots=1\na slots=1"})
    EXPECT_THROW(parse_hostfile(bad, "hostfile"), DataError) << bad;
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
  EXPECT_EQ(line(r), "mpirun -np 4 --host worker-1:4 tessera-train --do_train : -np 2 --host worker-2:2 -x CUDA_VISIBLE_DEVICES=0,2 tessera-train --do_train");
  r.include.clear();
  r.exclude = "worker-1@worker-2:3";
  EXPECT_EQ(line(r), "mpirun -np 3 --host worker-2:3 tessera-train --do_train");
  for (char const* bad : {"worker-3", "worker-1:4", "worker-1:x", "worker-1@worker-1", "worker-1@worker-2"}) {
    r.exclude = bad;
    EXPECT_THROW(line(r), UsageError) << bad;
  }
  r.exclude = r.include = "worker-1";
  EXPECT_THROW(line(r), UsageError);
}

TEST(LaunchLine, InsideASlurmJob) {
  LaunchRequest r;
  r.program = {"tessera-train"};
  r.inside_slurm = true;
  EXPECT_EQ(line(r), "srun tessera-train");
  r.num_nodes = 2, r.num_gpus = 4;
  EXPECT_EQ(line(r), "srun --nodes=2 --ntasks=8 --ntasks-per-node=4 tessera-train");
  r = two_hosts();
  r.inside_slurm = true;
  r.include = "worker-2:1,3";
  EXPECT_EQ(line(r), "srun --nodes=1 --ntasks=2 --ntasks-per-node=2 --nodelist=worker-2 --export=ALL,CUDA_VISIBLE_DEVICES=1,3 tessera-train --do_train");
  r.include = "worker-1@worker-2:0,2";
  EXPECT_THROW(line(r), UsageError);
}

}  // namespace
}  // namespace tessera::topology
