#include "tessera/core/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "scratch_files.hpp"
#include "tessera/core/error.hpp"

namespace tessera::log {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// What the logger writes to stderr in @p work; it writes to the descriptor, so a capture sees it.
template <class Work>
std::string logged(Work const& work) {
  ::testing::internal::CaptureStderr();
  work();
  return ::testing::internal::GetCapturedStderr();
}

TEST(Log, LevelsAndTags) {
  configure({.level = Level::info, .host = {}, .directory = {}});
  std::string const text = logged([] {
    debug("hidden detail");
    info("a step");
    error("a failure");
  });
  EXPECT_THAT(text, Not(HasSubstr("hidden detail")));
  EXPECT_THAT(text, HasSubstr(" a step\n"));
  EXPECT_THAT(text, HasSubstr(" error: a failure\n"));
}

TEST(Log, AWarningAppearsOncePerText) {
  configure({});
  std::string const text = logged([] {
    warning("the first");
    warning("the first");
    warning("the second");
  });
  auto const first = text.find("warning: the first");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(text.find("warning: the first", first + 1), std::string::npos);
  EXPECT_THAT(text, HasSubstr("warning: the second"));
}

TEST(Log, OtherRanksLogFromReplicaLevelAndAreNamed) {
  configure({.rank = 3, .world_size = 4, .host = "node7", .directory = {}});
  std::string const text = logged([] {
    info("hidden on replicas");
    error("shown");
  });
  EXPECT_THAT(text, Not(HasSubstr("hidden on replicas")));
  EXPECT_THAT(text, HasSubstr("[rank 3 node7] error: shown"));
}

TEST(Log, FileOfARankHasAllLevelsAndIsAppended) {
  ScratchFiles const folder;
  for (char const* message : {"attempt one", "attempt two"}) {
    Settings settings;
    settings.level = Level::error;
    settings.directory = folder.directory();
    configure(settings);
    EXPECT_EQ(logged([&] { debug(message); }), "");
  }
  configure({});
  std::ifstream in(folder.directory() / "rank_00000.log");
  std::string const text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(text, HasSubstr("debug attempt one"));
  EXPECT_THAT(text, HasSubstr("debug attempt two"));
}

TEST(Log, AFileThatCannotBeOpenedIsAnIoError) {
  ScratchFiles const folder;
  std::ofstream(folder.directory() / "file") << "";
  EXPECT_THROW(configure({.host = "", .directory = folder.directory() / "file"}), IoError);
  configure({});
}

}  // namespace
}  // namespace tessera::log
