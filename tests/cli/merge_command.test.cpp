#include "commands.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

std::string refusal(std::vector<std::string> words) {
  CLI::App app;
  add_merge(app);
  std::reverse(words.begin(), words.end());
  try {
    app.parse(words);
  } catch (IoError const& e) {
    return e.what();
  } catch (CLI::ParseError const& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(MergeCommand, NamesTheDirectoriesThatItNeeds) {
  EXPECT_THAT(refusal({"merge", "model"}), testing::HasSubstr("adapter_dir is required"));
  EXPECT_THAT(refusal({"merge", "/no/model", "/no/adapter", "out"}),
              testing::HasSubstr("there is no /no/model"));
}

}  // namespace
}  // namespace tessera::cli
