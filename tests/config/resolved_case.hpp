#pragma once
/// A configuration resolved from a DeepSpeed configuration and flags, or its error.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tessera/config/resolved_config.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config {

using Words = std::vector<std::string>;

inline ResolvedConfig resolved(std::string const& json, Words const& flags = {}, int world = 1,
                               std::int64_t hidden = 64) {
  Words words{"--model_name_or_path", "gpt2", "--train_file", "a.txt", "--do_train"};
  words.insert(words.end(), flags.begin(), flags.end());
  TrainingArguments a = parse_arguments(words);
  if (!json.empty())
    a.deepspeed = {ConfigTree::parse(json, "ds.json", ConfigTree::Syntax::relaxed), "ds.json"};
  return resolve(a, world, hidden);
}

inline std::string error_of(std::string const& json, Words const& flags = {}, int world = 1) {
  try {
    resolved(json, flags, world);
  } catch (ConfigError const& e) {
    EXPECT_EQ(e.code(), ExitCode::bad_config);
    return e.what();
  }
  return "";
}

}  // namespace tessera::config
