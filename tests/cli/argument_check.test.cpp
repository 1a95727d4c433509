#include "commands.hpp"

#include <gtest/gtest.h>

#include "scratch_files.hpp"
#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

using Words = std::vector<std::string>;

class ArgumentCheck : public testing::Test {
 protected:
  Words words(Words const& more) const {
    Words all{"--model_type",
              "gpt2",
              "--tokenizer_name",
              files_.directory().string(),
              "--do_train",
              "--train_file",
              files_.write("text.txt", "text")};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  ScratchFiles files_;
};

TEST_F(ArgumentCheck, AcceptsARun) { EXPECT_NO_THROW(check_training_arguments(words({}), 4)); }

TEST_F(ArgumentCheck, RefusesWhatTheRunWouldRefuse) {
  EXPECT_THROW(check_training_arguments(words({"--learning_rate", "fast"}), 4), UsageError);
  EXPECT_THROW(check_training_arguments({"--do_train"}, 4), UsageError);
  EXPECT_THROW(check_training_arguments(words({"--validation_file", "no/such/file"}), 4), IoError);
  auto const batch = files_.write("ds.json", R"({"train_batch_size": 10})");
  EXPECT_THROW(check_training_arguments(words({"--deepspeed", batch}), 4), ConfigError);
  EXPECT_NO_THROW(check_training_arguments(words({"--deepspeed", batch}), 5));
  EXPECT_NO_THROW(check_training_arguments(words({"--deepspeed", batch}), 0));
}

}  // namespace
}  // namespace tessera::cli
