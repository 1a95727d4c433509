#include "tessera/topology/mpi_headers.hpp"

#include <gtest/gtest.h>

#include "tessera/topology/mpi_session.hpp"

namespace tessera::topology {
namespace {

TEST(MpiHeaders, NameTheLibraryThatTestsAreLinkedWith) {
  EXPECT_EQ(mpi_version_of_headers(), MpiSession::library_version());
}

}  // namespace
}  // namespace tessera::topology
