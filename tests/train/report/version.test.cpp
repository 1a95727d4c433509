#include "tessera/train/report/version.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::train {
namespace {

TEST(Version, NamesEveryPart) {
  auto const versions = build_versions();
  for (auto const* key : {"tessera", "commit", "build", "compiler", "mpi", "hdf5", "kokkos", "blas",
                          "device", "nccl", "cudnn"})
    EXPECT_FALSE(versions.at(key).as_string().empty()) << key;
  EXPECT_THAT(source_date(), testing::MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}"));
}

TEST(Version, TextHasALinePerPartInColumns) {
  auto const versions =
      ConfigTree::parse(R"({"tessera": "1.2", "mpi": "Open MPI", "a_long_name": "x"})", "test");
  EXPECT_EQ(version_text("tessera-train", versions),
            "tessera-train 1.2\n  mpi      Open MPI\n  a_long_name x\n");
}

}  // namespace
}  // namespace tessera::train
