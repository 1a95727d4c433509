#include "tessera/train/model_source.hpp"

#include "tessera/checkpoint/safetensors.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/model/causal_lm.hpp"

namespace tessera::train {
namespace fs = std::filesystem;
namespace {

ConfigTree read_config(fs::path const& given, char const* flag) {
  fs::path const file = fs::is_directory(given) ? given / "config.json" : given;
  TESSERA_VALIDATE(fs::exists(file), IoError, flag, " ", given.string(), ": there is no ", file.string(),
                   "; give a local Hugging Face directory (nothing is fetched from a hub)");
  return ConfigTree::read(file);
}

}  // namespace

ModelSource find_model(TrainingArguments const& arguments) {
  ModelSource source;
  if (!arguments.config_name.empty()) source.config = read_config(arguments.config_name, "--config_name");
  else if (!arguments.model_name_or_path.empty()) source.config = read_config(arguments.model_name_or_path, "--model_name_or_path");
  else {
    TESSERA_VALIDATE(!arguments.model_type.empty(), UsageError,
                     "no model is named; give --model_name_or_path DIR, --config_name DIR_OR_FILE, or --model_type gpt2");
    source.config = model::default_config(arguments.model_type);
  }
  if (!arguments.config_overrides.empty()) {
    TESSERA_VALIDATE(arguments.model_name_or_path.empty() && arguments.config_name.empty(), UsageError,
                     "--config_overrides cannot be combined with --config_name or --model_name_or_path (run_clm.py's rule); use --model_type");
    source.config = model::apply_overrides(source.config, arguments.config_overrides);
  }
  source.weights_directory = arguments.model_name_or_path;
  source.tokenizer_directory = !arguments.tokenizer_name.empty() ? arguments.tokenizer_name : arguments.model_name_or_path;
  return source;
}

zero::Engine::Fill initial_weights(ModelSource const& source, std::vector<memory::UnitSpec> const& units, std::uint64_t seed) {
  if (source.weights_directory.empty())
    return [&units, seed](int u, int p, std::int64_t first, std::int64_t numel, float* out) {
      model::initialize_parameter(units[static_cast<std::size_t>(u)].parameters[static_cast<std::size_t>(p)], seed, first, numel, out);
    };

  auto weights = std::make_shared<checkpoint::ModelWeights>(source.weights_directory);
  weights->require(units);
  return [weights, &units](int u, int p, std::int64_t first, std::int64_t numel, float* out) {
    weights->fill(units[static_cast<std::size_t>(u)].parameters[static_cast<std::size_t>(p)], first, numel, out);
  };
}

}  // namespace tessera::train
