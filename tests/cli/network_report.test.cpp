#include "doctor/node_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

NetworkDevices const ethernet{{"lo", "eth0"}, {}};
NetworkDevices const fabric{{"lo", "eth0", "ib0"}, {"mlx5_0", "mlx5_1"}};

std::vector<std::string> problems(topology::Environment const& environment,
                                  NetworkDevices const& devices) {
  return network_section(environment, devices).problems;
}

TEST(NetworkReport, ListsVariablesOfTheMessageLibraries) {
  auto const section = network_section(
      {{"UCX_LOG_LEVEL", "warn"}, {"OMPI_MCA_ess_base_jobid", "7"}, {"HOME", "/root"}}, fabric);
  EXPECT_THAT(section.facts, Contains(Pair("UCX_LOG_LEVEL", "warn")));
  EXPECT_THAT(section.facts, Contains(Pair("InfiniBand, RoCE", "mlx5_0, mlx5_1")));
  EXPECT_THAT(section.facts, Not(Contains(Pair("HOME", testing::_))));
  EXPECT_THAT(section.facts, Not(Contains(Pair("OMPI_MCA_ess_base_jobid", testing::_))))
      << "set by mpirun";
  EXPECT_THAT(section.problems, IsEmpty());
}

TEST(NetworkReport, NamesWhatTurnsAFastPathOff) {
  EXPECT_THAT(problems({{"OMPI_MCA_btl", "tcp,self"}}, ethernet),
              ElementsAre(AllOf(HasSubstr("OMPI_MCA_btl=tcp,self"), HasSubstr("shared memory"))));
  EXPECT_THAT(problems({{"OMPI_MCA_btl", "^vader"}}, ethernet), Not(IsEmpty()));
  EXPECT_THAT(problems({{"OMPI_MCA_btl", "^openib"}}, ethernet), IsEmpty());
  EXPECT_THAT(problems({{"OMPI_MCA_btl", "self,vader,tcp"}}, ethernet), IsEmpty());
  EXPECT_THAT(problems({{"UCX_TLS", "tcp,sm"}}, fabric),
              ElementsAre(HasSubstr("UCX does not use this node's adapters")));
  EXPECT_THAT(problems({{"UCX_TLS", "tcp,sm"}}, ethernet), IsEmpty()) << "nothing faster is there";
  EXPECT_THAT(problems({{"UCX_TLS", "rc_x,sm,self"}}, fabric), IsEmpty());
  EXPECT_THAT(problems({{"OMPI_MCA_pml", "ob1"}}, fabric),
              ElementsAre(HasSubstr("MPI does not use UCX")));
  EXPECT_THAT(problems({{"FI_PROVIDER", "sockets"}}, ethernet),
              ElementsAre(HasSubstr("libfabric uses TCP sockets")));
}

TEST(NetworkReport, NamesDevicesThatTheNodeDoesNotHave) {
  EXPECT_THAT(problems({{"UCX_NET_DEVICES", "mlx5_2:1,mlx5_0:1"}}, fabric),
              ElementsAre(AllOf(HasSubstr("no mlx5_2;"), HasSubstr("it has mlx5_0, mlx5_1"))));
  EXPECT_THAT(problems({{"UCX_NET_DEVICES", "eth0"}}, ethernet), IsEmpty());
  EXPECT_THAT(problems({{"OMPI_MCA_btl_tcp_if_include", "ib0"}}, ethernet),
              ElementsAre(HasSubstr("it has eth0, lo")));
  EXPECT_THAT(problems({{"OMPI_MCA_btl_tcp_if_include", "10.0.0.0/8"}}, ethernet), IsEmpty());
  EXPECT_THAT(problems({{"NCCL_SOCKET_IFNAME", "eth"}}, ethernet), IsEmpty()) << "a prefix";
  EXPECT_THAT(problems({{"NCCL_IB_HCA", "=mlx5_0"}}, fabric), IsEmpty());
}

}  // namespace
}  // namespace tessera::cli
