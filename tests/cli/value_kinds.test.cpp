#include "manual/manual.hpp"

#include <gtest/gtest.h>

#include "tessera/config/option_table.hpp"
#include "validators.hpp"

namespace tessera::cli {
namespace {

using Source = ValueKind::Source;

TEST(ValueKinds, FollowFromNamesTypesAndChecks) {
  CLI::App app;
  std::string text;
  int number = 0;
  double real = 0;
  EXPECT_EQ(value_kind(*app.add_flag("--json")).source, Source::flag);
  EXPECT_EQ(value_kind(*app.add_option("run_directory", text)).source, Source::directory);
  EXPECT_EQ(value_kind(*app.add_option("--output", text)).name, "PATH");
  EXPECT_EQ(value_kind(*app.add_option("--site", text)).source, Source::site);
  EXPECT_EQ(value_kind(*app.add_option("--ranks", number)).name, "N");
  EXPECT_EQ(value_kind(*app.add_option("--tolerance", real)).name, "X");
  auto const dtype = value_kind(*app.add_option("--dtype", text));
  EXPECT_EQ(dtype.name, "fp32|bf16|fp16");
  EXPECT_EQ(dtype.words, (std::vector<std::string>{"fp32", "bf16", "fp16"}));
  auto const which = value_kind(*app.add_option("--which", text)->check(one_of({"x", "yz"})));
  EXPECT_EQ(which.words, (std::vector<std::string>{"x", "yz"}));
}

TEST(ValueKinds, OfTrainingOptionsComeFromTheirTable) {
  auto const& table = config::argument_table();
  EXPECT_EQ(value_kind(*table.find("train_file")).source, Source::file);
  EXPECT_EQ(value_kind(*table.find("max_steps")).name, "N");
  auto const schedules = value_kind(*table.find("lr_scheduler_type")).words;
  EXPECT_NE(std::find(schedules.begin(), schedules.end(), "cosine"), schedules.end());
}

}  // namespace
}  // namespace tessera::cli
