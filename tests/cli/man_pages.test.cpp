#include "commands.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

using testing::HasSubstr;

TEST(ManPages, TroffReadsTextLiterally) {
  Command app("tessera", "tools");
  bool dry_run = false;
  app.add_command("submit", "Fill in\n.a script with C:\\x")
      .add("--dry-run", dry_run, "print only");
  std::string const page = tools_page(app);
  EXPECT_THAT(page, HasSubstr(".SS \\&tessera submit [options]\n"));
  EXPECT_THAT(page, HasSubstr("\\&Fill in\n\\&.a script with C:\\ex\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\&\\-\\-dry\\-run\\fR\n\\&print only"));
  EXPECT_THAT(page, HasSubstr(".SH EXIT STATUS"));
}

TEST(ManPages, ValuesHaveNamesAndCommandsTheirArguments) {
  Command app("tessera", "tools");
  std::string text;
  auto& command = app.add_command("plot", "Draw");
  command.add("run_directory", text, "the run").required();
  command.add("--output PATH", text, "SVG file");
  std::string const page = tools_page(app);
  EXPECT_THAT(page, HasSubstr(".SS \\&tessera plot [options] run_directory\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\&\\-\\-output\\fR \\fI\\&PATH\\fR\n\\&SVG file"));
  EXPECT_THAT(training_page(), HasSubstr("max_steps\\fR \\fI\\&N\\fR\n"));
  EXPECT_THAT(training_page(), HasSubstr("do_train\\fR\n"));
}

TEST(ManPages, HaveExamplesAndReferences) {
  Command const app("tessera", "tools");
  for (auto const& page : {training_page(), tools_page(app), consolidation_page()}) {
    EXPECT_THAT(page, HasSubstr(".SH EXAMPLES\n"));
    EXPECT_THAT(page, HasSubstr(".SH SEE ALSO\n"));
  }
  EXPECT_THAT(consolidation_page(), HasSubstr("\\fBtessera\\-train\\fR(1)"));
}

TEST(ManPages, EachProgramHasItsOptions) {
  EXPECT_THAT(training_page(), HasSubstr("\\-\\-per_device_train_batch_size"));
  EXPECT_THAT(consolidation_page(), HasSubstr("\\-\\-max_shard_size"));
}

}  // namespace
}  // namespace tessera::cli
