#include "commands.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "tessera/config/arguments.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/data/text/text_files.hpp"
#include "tessera/model/families/registry.hpp"

namespace tessera::cli {
namespace fs = std::filesystem;

std::int64_t known_hidden_size(config::TrainingArguments const& arguments) {
  fs::path const& given =
      arguments.config_name.empty() ? arguments.model_name_or_path : arguments.config_name;
  fs::path const file = fs::is_directory(given) ? given / "config.json" : given;
  if (!given.empty()) return fs::exists(file) ? model::hidden_size(ConfigTree::read(file)) : 0;
  if (arguments.model_type.empty()) return 0;
  return model::hidden_size(model::apply_overrides(model::default_config(arguments.model_type),
                                                   arguments.config_overrides));
}

void check_training_arguments(std::vector<std::string> const& words, int ranks) {
  auto const arguments = config::parse_arguments(words);
  std::pair<char const*, fs::path const*> const inputs[] = {
      {"--model_name_or_path", &arguments.model_name_or_path},
      {"--config_name", &arguments.config_name},
      {"--tokenizer_name", &arguments.tokenizer_name}};
  for (auto const& [name, path] : inputs)
    TESSERA_VALIDATE(path->empty() || fs::exists(*path), IoError, name, " ", path->string(),
                     " does not exist");
  for (auto const* text : {&arguments.train_file, &arguments.validation_file})
    if (!text->empty()) data::find_text_files(*text);
  auto const hidden_size = std::max<std::int64_t>(known_hidden_size(arguments), 1);
  if (ranks > 0) config::resolve(arguments, ranks, hidden_size);
}

}  // namespace tessera::cli
