#include "tessera/train/report/version.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::train {
namespace {

/// Both programs print the same lines; only MPI and BLAS are asked for what is loaded.
TEST(LibraryVersions, DifferFromTheBuildInTheLoadedLibrariesOnly) {
  auto const built = build_versions().as_object(), loaded = library_versions().as_object();
  ASSERT_EQ(built.size(), loaded.size());
  for (std::size_t i = 0; i < built.size(); ++i) {
    EXPECT_EQ(built[i].first, loaded[i].first);
    EXPECT_FALSE(loaded[i].second.as_string().empty()) << loaded[i].first;
    bool const asked = built[i].first == "mpi" || built[i].first == "blas";
    EXPECT_TRUE(asked || built[i].second == loaded[i].second) << loaded[i].first;
  }
}

TEST(LibraryVersions, TheTextHasALinePerEntry) {
  auto const versions = library_versions();
  auto const text = version_text("program", versions);
  EXPECT_THAT(text, testing::StartsWith("program " + versions.at("tessera").as_string() + "\n"));
  for (auto const& [key, value] : versions.as_object())
    EXPECT_THAT(text, testing::HasSubstr(value.as_string() + "\n")) << key;
}

}  // namespace
}  // namespace tessera::train
