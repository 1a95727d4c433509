#include "tessera/core/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <new>
#include <stdexcept>

namespace tessera {
namespace {

using ::testing::HasSubstr;

TEST(Exceptions, OfTheFileSystemAreInputAndOutput) {
  std::filesystem::filesystem_error const full("status", "/data/run",
                                               std::make_error_code(std::errc::no_space_on_device));
  EXPECT_EQ(to_error(full).code(), ExitCode::io);
  EXPECT_THAT(to_error(full).what(), HasSubstr("/data/run: No space left"));
  std::filesystem::filesystem_error const denied(
      "status", "/", std::make_error_code(std::errc::permission_denied));
  EXPECT_EQ(to_error(denied).code(), ExitCode::io);
  EXPECT_THAT(to_error(denied).what(), HasSubstr("/ (owner root, mode "));
}

TEST(Exceptions, OthersAreInternal) {
  EXPECT_EQ(to_error(std::bad_alloc()).code(), ExitCode::internal);
  EXPECT_THAT(to_error(std::bad_alloc()).what(), HasSubstr("out of memory"));
  EXPECT_EQ(to_error(std::logic_error("x")).code(), ExitCode::internal);
  EXPECT_THAT(to_error(std::logic_error("x")).what(), HasSubstr("unexpected exception: x"));
}

}  // namespace
}  // namespace tessera
