#include "values_suite.hpp"

namespace tessera::comm::test {
namespace {

INSTANTIATE_TEST_SUITE_P(All, Values,
                         ::testing::Values(Implementation::automatic, Implementation::mpi_only,
                                           Implementation::recording),
                         name_of_case);

}  // namespace
}  // namespace tessera::comm::test
