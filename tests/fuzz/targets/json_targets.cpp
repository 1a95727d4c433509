#include <sstream>

#include "checkpoint/format/detail/checksum.hpp"
#include "fuzz.hpp"
#include "tessera/checkpoint/format/manifest.hpp"
#include "tessera/config/arguments.hpp"
#include "tessera/config/learning_rate.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/model/families/registry.hpp"
#include "tessera/train/setup/engine_config.hpp"

namespace tessera::fuzz {
namespace {

void require(bool holds, char const* what) {
  if (!holds) throw std::logic_error(what);
}

/// What is wrong with a configuration: a message, and a code that names the user's input.
void require_configuration_error(Error const& error) {
  require(*error.what() != '\0', "an error without a message");
  require(error.code() == ExitCode::usage || error.code() == ExitCode::bad_data ||
              error.code() == ExitCode::bad_config,
          "a wrong configuration is not 64, 65 or 78");
}

/// The text with the checksum it should end with: so that damage reaches what is behind it.
std::string sealed(std::string_view bytes) {
  auto const at = bytes.rfind("\"manifest_xxh3\"");
  if (at == std::string_view::npos) return std::string(bytes);
  std::string text(bytes.substr(0, at));
  std::string const sum = checkpoint::detail::to_hex(
      {checkpoint::detail::xxh3(text.data(), static_cast<std::int64_t>(text.size()))});
  return text + "\"manifest_xxh3\": \"" + sum + "\"\n}\n";
}

}  // namespace

/// First byte: syntax. What is read and written again is the same document.
void json(std::string_view bytes) {
  if (bytes.empty()) return;
  try {
    auto const tree =
        ConfigTree::parse(bytes.substr(1), "fuzz",
                          bytes[0] & 1 ? ConfigTree::Syntax::relaxed : ConfigTree::Syntax::strict);
    auto const text = tree.dump();
    require(ConfigTree::parse(text, "again").dump() == text,
            "a document changes when it is written and read");
  } catch (Error const&) {
  }
}

void manifest(std::string_view bytes) {
  try {
    auto const read = checkpoint::parse_manifest(sealed(bytes), "directory");
    auto const again = checkpoint::parse_manifest(checkpoint::manifest_text(read), "directory");
    require(again.tensors == read.tensors && again.shards == read.shards && again.step == read.step,
            "a manifest changes when it is written and read");
    require(read.parameter_count() >= 0 && read.shard_bytes() >= 0, "a size overflows");
  } catch (Error const&) {
  }
}

void model_config(std::string_view bytes) {
  try {
    auto const tree = ConfigTree::parse(bytes, "config.json");
    // building a list of a hundred thousand layers is right, but slow
    for (auto const* key : {"n_layer", "num_hidden_layers"})
      if (auto const* layers = tree.find(key);
          layers && layers->is_int() && layers->as_int() > 64 && layers->as_int() <= 100'000)
        return;
    auto const model = model::make_model(tree, Dtype::fp32);
    std::int64_t numel = 0;
    for (auto const& unit : model->units())
      for (auto const& parameter : unit.parameters)
        require(!__builtin_add_overflow(numel, parameter.numel(), &numel) && parameter.numel() > 0,
                "a size overflows");
  } catch (Error const&) {
  }
}

void deepspeed_config(std::string_view bytes) {
  try {
    config::TrainingArguments arguments;
    arguments.deepspeed = {ConfigTree::parse(bytes, "ds.json", ConfigTree::Syntax::relaxed),
                           "ds.json"};
    auto const resolved = config::resolve(arguments, 4, 768);
    (void)train::engine_config(resolved);
    (void)config::learning_rate_schedule(resolved, 100);
    (void)config::describe(resolved).dump();
  } catch (Error const& error) {
    require_configuration_error(error);
  }
}

/// First byte: a run file, Accelerate's YAML, FSDP's configuration, or a command line with a word
/// per line.
void training_options(std::string_view bytes) {
  if (bytes.empty()) return;
  std::string const text(bytes.substr(1));
  std::vector<std::string> words;
  if (bytes[0] % 4 == 0) words = {put("run.json", text).string()};
  if (bytes[0] % 4 == 1) words = {"--accelerate_config", put("accelerate.yaml", text).string()};
  if (bytes[0] % 4 == 2)
    words = {"--fsdp", "full_shard", "--fsdp_config", put("fsdp.json", text).string()};
  std::istringstream lines(bytes[0] % 4 == 3 ? text : "");
  for (std::string line; std::getline(lines, line);) words.push_back(line);
  try {
    auto const arguments = config::parse_options(words);
    auto const resolved = config::resolve(arguments, 4, 768);
    (void)config::find_traps(arguments, resolved);
    (void)config::describe(arguments).dump();
  } catch (IoError const&) {  // a file that a mutated line names
  } catch (Error const& error) {
    require_configuration_error(error);
  }
}

}  // namespace tessera::fuzz
