#include "manual/manual.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

using testing::HasSubstr;

TEST(ManPages, TroffReadsTextLiterally) {
  CLI::App app("tools", "tessera");
  auto* const command = app.add_subcommand("submit", "Fill in\n.a script with C:\\x");
  command->add_flag("--dry-run")->description("Print only");
  std::string const page = tools_page(app);
  EXPECT_THAT(page, HasSubstr(".SS \\&tessera submit\n"));
  EXPECT_THAT(page, HasSubstr("\\&Fill in\n\\&.a script with C:\\ex\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\&\\-\\-dry\\-run\\fR\n\\&Print only"));
  EXPECT_THAT(page, HasSubstr(".SH EXIT STATUS"));
}

TEST(ManPages, ValuesHaveNamesAndCommandsTheirArguments) {
  CLI::App app("tools", "tessera");
  std::string text;
  auto* const command = app.add_subcommand("plot", "Draw");
  command->add_option("run_directory", text, "The run");
  command->add_option("--output", text, "SVG file");
  std::string const page = tools_page(app);
  EXPECT_THAT(page, HasSubstr(".SS \\&tessera plot run_directory\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\&\\-\\-output\\fR \\fI\\&PATH\\fR\n\\&SVG file"));
  EXPECT_THAT(training_page(), HasSubstr("max_steps\\fR \\fI\\&N\\fR\n"));
  EXPECT_THAT(training_page(), HasSubstr("do_train\\fR \\fI\\&true|false\\fR\n"));
}

TEST(ManPages, HaveExamplesAndReferences) {
  CLI::App const app("tools", "tessera");
  for (auto const& page : {training_page(), tools_page(app), consolidation_page()}) {
    EXPECT_THAT(page, HasSubstr(".SH EXAMPLES\n"));
    EXPECT_THAT(page, HasSubstr(".SH SEE ALSO\n"));
  }
  EXPECT_THAT(consolidation_page(), HasSubstr("\\fB\\&tessera\\-train\\fR(1)"));
}

TEST(ManPages, EachProgramHasItsOptions) {
  EXPECT_THAT(training_page(), HasSubstr("\\-\\-per_device_train_batch_size"));
  EXPECT_THAT(consolidation_page(), HasSubstr("\\-\\-max_shard_size"));
}

}  // namespace
}  // namespace tessera::cli
