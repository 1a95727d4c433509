#include "tessera/config/resolved_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::config {
namespace {

TrainingArguments arguments(std::vector<std::string> more) {
  std::vector<std::string> words{"--output_dir",     "out",          "--config_overrides",
                                 "n_layer=1",        "--model_type", "gpt2",
                                 "--do_train",       "--train_file", "text.txt",
                                 "--tokenizer_name", "gpt2"};
  words.insert(words.end(), more.begin(), more.end());
  return parse_arguments(words);
}

TEST(MemoryBounds, AreSizesOrNone) {
  auto const none = memory_bounds(arguments({}));
  EXPECT_EQ(none.device, 0);
  EXPECT_EQ(none.host, 0);
  auto const both = memory_bounds(arguments({"--device_memory", "2GiB", "--host_memory", "500MB"}));
  EXPECT_EQ(both.device, std::int64_t{2} << 30);
  EXPECT_EQ(both.host, 500'000'000);
}

TEST(MemoryBounds, RefuseOtherWordsByTheNameOfTheOption) {
  try {
    arguments({"--device_memory", "plenty"});
    FAIL();
  } catch (UsageError const& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("--device_memory: 'plenty' is not a size"));
  }
}

}  // namespace
}  // namespace tessera::config
