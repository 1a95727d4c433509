#include "tessera/train/setup/model_source.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scratch_files.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/core/error.hpp"

namespace tessera::train {
namespace {

using ::testing::HasSubstr;

struct Source : ::testing::Test {
  ModelSource find() { return find_model(arguments, *comm); }
  /// Errors of rank 0 reach every rank as the base type with the same exit code.
  std::string error(ExitCode code) {
    try {
      find();
    } catch (Error const& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      return e.what();
    }
    return "";
  }
  config::TrainingArguments arguments;
  std::unique_ptr<comm::Collectives> comm = comm::make_loopback();
  ScratchFiles files;
};

TEST_F(Source, AModelTypeHasItsDefaultsAndOverrides) {
  arguments.model_type = "gpt2";
  arguments.config_overrides = "n_embd=64,n_layer=2";
  auto const source = find();
  EXPECT_EQ(source.config.at("n_embd").as_int(), 64);
  EXPECT_EQ(source.config.at("n_head").as_int(), 12);
  EXPECT_TRUE(source.weights_directory.empty());
  EXPECT_TRUE(source.tokenizer_directory.empty());
}

TEST_F(Source, ADirectoryGivesConfigurationWeightsAndTokenizer) {
  files.write("config.json", R"({"model_type": "gpt2", "n_embd": 32})");
  arguments.model_name_or_path = files.directory();
  auto const source = find();
  EXPECT_EQ(source.config.at("n_embd").as_int(), 32);
  EXPECT_EQ(source.weights_directory, files.directory());
  EXPECT_EQ(source.tokenizer_directory, files.directory());
  arguments.tokenizer_name = "elsewhere";
  EXPECT_EQ(find().tokenizer_directory, "elsewhere");
}

TEST_F(Source, AConfigurationNameIsADirectoryOrAFile) {
  auto const file = files.write("config.json", R"({"model_type": "gpt2", "n_embd": 48})");
  for (std::filesystem::path const& given : {files.directory(), std::filesystem::path(file)}) {
    arguments.config_name = given;
    EXPECT_EQ(find().config.at("n_embd").as_int(), 48);
    EXPECT_TRUE(find().weights_directory.empty()) << "random weights";
  }
}

TEST_F(Source, ErrorsNameTheFlag) {
  EXPECT_THAT(error(ExitCode::usage), HasSubstr("no model is named; give --model_name_or_path"));
  arguments.config_name = files.directory();
  EXPECT_THAT(error(ExitCode::io),
              HasSubstr(concat("--config_name ", files.directory().string(), ": there is no ")));
  files.write("config.json", R"({"model_type": "gpt2"})");
  arguments.config_overrides = "n_embd=64";
  EXPECT_THAT(error(ExitCode::usage), HasSubstr("--config_overrides cannot be combined"));
}

}  // namespace
}  // namespace tessera::train
