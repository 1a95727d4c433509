#include "tessera/train/setup/model_source.hpp"

#include <gtest/gtest.h>

#include "scratch_files.hpp"
#include "tessera/core/error.hpp"

namespace tessera::train {
namespace {

TEST(ModelConfig, IsThatOfTheNamedModel) {
  ScratchFiles const files;
  files.write("config.json", R"({"model_type": "gpt2", "n_layer": 3})");
  config::TrainingArguments a;
  EXPECT_THROW(model_config(a), UsageError);
  a.model_type = "gpt2";
  a.config_overrides = "n_layer=5";
  EXPECT_EQ(model_config(a).at("n_layer").as_int(), 5);
  a.model_name_or_path = files.directory() / "missing";
  a.config_overrides.clear();
  EXPECT_THROW(model_config(a), IoError);
  a.model_name_or_path = files.directory();
  EXPECT_EQ(model_config(a).at("n_layer").as_int(), 3);
  a.config_overrides = "n_layer=5";
  EXPECT_THROW(model_config(a), UsageError);
}

}  // namespace
}  // namespace tessera::train
