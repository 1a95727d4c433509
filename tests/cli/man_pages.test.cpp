#include "manual/man_pages.hpp"

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

TEST(ManPages, EachProgramHasItsOptions) {
  EXPECT_THAT(training_page(), HasSubstr("\\-\\-per_device_train_batch_size"));
  EXPECT_THAT(consolidation_page(), HasSubstr("\\-\\-max_shard_size"));
}

}  // namespace
}  // namespace tessera::cli
