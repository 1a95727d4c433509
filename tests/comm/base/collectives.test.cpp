#include "collectives_suite.hpp"

namespace tessera::comm::test {
namespace {

auto const dtypes = ::testing::Values(Dtype::fp32, Dtype::fp16, Dtype::bf16, Dtype::fp64,
                                      Dtype::int32, Dtype::int64);
auto const placements = ::testing::Values(Placement::allocated, Placement::ordinary);
INSTANTIATE_TEST_SUITE_P(All, CollectivesSuite,
                         ::testing::Combine(::testing::Values(Implementation::loopback,
                                                              Implementation::automatic,
                                                              Implementation::mpi_only),
                                            dtypes, placements),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Staged, CollectivesSuite,
                         ::testing::Combine(::testing::Values(Implementation::staged),
                                            ::testing::Values(Dtype::bf16), placements),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Recording, CollectivesSuite,
                         ::testing::Combine(::testing::Values(Implementation::recording),
                                            ::testing::Values(Dtype::bf16), placements),
                         name_of_case);

}  // namespace
}  // namespace tessera::comm::test
