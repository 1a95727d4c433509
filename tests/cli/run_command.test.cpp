#include "recovery/run_command.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

using testing::ElementsAre;

TEST(NodesOfJob, HaveTheTasksPerNodeOfTheEnvironment) {
  HostSlots const one{"n1", {0, 1}}, two{"n2", {0, 1}};
  EXPECT_THAT(nodes_of_job("n1\nn2\n", {{"SLURM_NTASKS_PER_NODE", "2"}}, 0), ElementsAre(one, two));
  EXPECT_THAT(nodes_of_job("n1\nn2\n", {{"SLURM_TASKS_PER_NODE", "2(x2)"}}, 0),
              ElementsAre(one, two));
  EXPECT_THAT(nodes_of_job("n1", {{"SLURM_NTASKS_PER_NODE", "8"}}, 2), ElementsAre(one));
  EXPECT_EQ(nodes_of_job("n1", {}, 0).front().slots.size(), 1U);
  EXPECT_TRUE(nodes_of_job("", {}, 0).empty());
}

TEST(NodesOfNodeFile, HaveOneSlotPerLine) {
  HostSlots const a{"a", {0, 1}}, b{"b", {0}};
  EXPECT_THAT(nodes_of_node_file("a\nb\na\n", 0), ElementsAre(a, b));
  EXPECT_EQ(nodes_of_node_file("a\n", 4).front().slots.size(), 4U);
  EXPECT_THROW(nodes_of_node_file("", 0), IoError);
}

}  // namespace
}  // namespace tessera::cli
