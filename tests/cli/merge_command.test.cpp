#include "commands.hpp"

#include <gmock/gmock.h>

#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

std::string refusal(std::vector<std::string> const& words) {
  Command app("tessera");
  add_merge(app);
  try {
    app(words);
  } catch (Error const& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(MergeCommand, NamesTheDirectoriesThatItNeeds) {
  EXPECT_THAT(refusal({"merge", "model"}), testing::HasSubstr("argument adapter_dir is missing"));
  EXPECT_THAT(refusal({"merge", "/no/model", "/no/adapter", "out"}),
              testing::HasSubstr("there is no /no/model"));
}

}  // namespace
}  // namespace tessera::cli
