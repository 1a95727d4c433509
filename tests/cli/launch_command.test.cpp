#include "launch/launch_command.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

using testing::ElementsAre;

TEST(CommandWords, AScriptBecomesTheTrainer) {
  EXPECT_THAT(command_words({"run_clm.py", "--do_train"}, "/bin/tessera-train"),
              ElementsAre("/bin/tessera-train", "--do_train"));
  EXPECT_THAT(command_words({"run.json"}, "t"), ElementsAre("t", "run.json"));
  EXPECT_THAT(command_words({"--do_train"}, "t"), ElementsAre("t", "--do_train"));
  EXPECT_THAT(command_words({}, "t"), ElementsAre("t"));
  EXPECT_THAT(command_words({"run_clm.py", "run.json"}, "t"), ElementsAre("t", "run.json"));
}

TEST(CommandWords, OtherProgramsStay) {
  EXPECT_THAT(command_words({"hostname", "-f"}, "t"), ElementsAre("hostname", "-f"));
}

}  // namespace
}  // namespace tessera::cli
