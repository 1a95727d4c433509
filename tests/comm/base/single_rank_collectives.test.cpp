/// The suite of the interface on one rank and a fake device.
#include "collectives_suite.hpp"

namespace tessera::comm::test {
namespace {

auto const dtypes = ::testing::Values(Dtype::fp32, Dtype::bf16, Dtype::int64);
auto const placements = ::testing::Values(Placement::allocated, Placement::ordinary);
INSTANTIATE_TEST_SUITE_P(SingleRank, CollectivesSuite,
                         ::testing::Combine(::testing::Values(Implementation::single_rank), dtypes,
                                            placements),
                         name_of_case);

TEST(SingleRank, ItIsTheAutomaticChoiceAndNeedsNoLibrary) {
  tessera::test::FakeDevice device;
  auto const comm = make_device(make_loopback(), 60s);
  Array in(*comm, Placement::allocated, Dtype::bf16, 10),
      out(*comm, Placement::allocated, Dtype::fp32, 4);
  in.fill([](auto i) { return static_cast<double>(i); });
  comm->wait(comm->reduce_scatter(in.view(), {4, 10, 3}, out.view(), memory::WriteMode::add, {}));
  EXPECT_EQ(out[3], 6.0);
}

}  // namespace
}  // namespace tessera::comm::test
