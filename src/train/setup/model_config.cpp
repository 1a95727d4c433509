#include "tessera/train/setup/model_source.hpp"

#include <algorithm>

#include "tessera/checkpoint/interchange/model_weights.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/data/tokenizer/tokenizer.hpp"
#include "tessera/model/decoder/causal_lm.hpp"
#include "tessera/model/families/registry.hpp"

namespace tessera::train {
namespace fs = std::filesystem;
namespace {

ConfigTree read_config(fs::path const& given, char const* flag) {
  fs::path const file = fs::is_directory(given) ? given / "config.json" : given;
  TESSERA_VALIDATE(fs::exists(file), IoError, flag, " ", given.string(), ": there is no ",
                   file.string(),
                   "; give a local Hugging Face directory (nothing is downloaded from the Hub)");
  return ConfigTree::read(file);
}

ConfigTree named_config(config::TrainingArguments const& arguments) {
  if (!arguments.config_name.empty()) return read_config(arguments.config_name, "--config_name");
  if (!arguments.model_name_or_path.empty())
    return read_config(arguments.model_name_or_path, "--model_name_or_path");
  TESSERA_VALIDATE(!arguments.model_type.empty(), UsageError,
                   "no model is named; give --model_name_or_path DIR, --config_name DIR_OR_FILE, "
                   "or --model_type gpt2");
  return model::default_config(arguments.model_type);
}

}  // namespace

ConfigTree model_config(config::TrainingArguments const& arguments) {
  auto config = named_config(arguments);
  if (arguments.config_overrides.empty()) return config;
  TESSERA_VALIDATE(arguments.model_name_or_path.empty() && arguments.config_name.empty(),
                   UsageError,
                   "--config_overrides cannot be combined with --config_name or "
                   "--model_name_or_path (run_clm.py's rule); use --model_type");
  return model::apply_overrides(std::move(config), arguments.config_overrides);
}

std::unique_ptr<model::CausalLm> known_model(ConfigTree const& config) {
  try {
    return model::make_model(config, Dtype::fp32);
  } catch (ConfigError const&) {
    return nullptr;
  }
}

ConfigTree keep_stored_head(ConfigTree config, fs::path const& weights) {
  if (weights.empty() || !checkpoint::has_model_weights(weights)) return config;
  auto const model = known_model(config);
  if (!model || !model->config().get_bool("tie_word_embeddings", false)) return config;
  auto const head = checkpoint::ModelWeights(weights).different_alias(model->units());
  if (head.empty()) return config;
  log::warning(concat(weights.string(), ": tie_word_embeddings is true, but ", head,
                      " has other values than the embedding; both are kept, as transformers does, "
                      "and the model is written with tie_word_embeddings false"));
  return config.set("tie_word_embeddings", false);
}

std::int64_t rows_for_tokens(ConfigTree const& config,
                             std::filesystem::path const& tokenizer_directory) {
  auto const model = tokenizer_directory.empty() ? nullptr : known_model(config);
  if (!model) return 0;
  try {
    auto const tokenizer = data::load_tokenizer(tokenizer_directory);
    std::int64_t const tokens =
        std::max<std::int64_t>(tokenizer->vocabulary_size(), tokenizer->max_id() + 1);
    return tokens > model->vocabulary_size() ? tokens : 0;
  } catch (Error const&) {  // whoever needs the tokenizer says why it cannot be read
    return 0;
  }
}

}  // namespace tessera::train
