#include "commands.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

ConfigTree status(std::string const& state) {
  ConfigTree tree;
  tree.set("state", state).set("exit_code", 75).set("updated", "2026-01-31T12:00:00Z");
  return tree;
}
constexpr std::int64_t updated = 1769860800;  // that time in seconds since 1970

TEST(ExitCodeOfARun, IsRecordedWhenItHasEnded) {
  EXPECT_EQ(recorded_exit_code(status("stopped_early"), "run", 0), 75);
  EXPECT_THROW(recorded_exit_code(status("running"), "run", 0), IoError);
  ConfigTree without;
  without.set("state", "failed").set("updated", "2026-01-31T12:00:00Z");
  EXPECT_EQ(recorded_exit_code(without, "run", 0), 70);
}

TEST(ExitCodeOfARun, OfAnEarlierAttemptDoesNotCount) {
  EXPECT_EQ(recorded_exit_code(status("done"), "run", updated), 75);
  EXPECT_THROW(recorded_exit_code(status("done"), "run", updated + 1), IoError);
}

}  // namespace
}  // namespace tessera::cli
