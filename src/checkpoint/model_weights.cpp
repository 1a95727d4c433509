#include "detail/text.hpp"
#include "tessera/checkpoint/safetensors.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

fs::path const& check_directory(fs::path const& directory) {
  std::error_code error;
  TESSERA_VALIDATE(fs::is_directory(directory, error), IoError, directory.string(), " is not a directory; give a Hugging Face model directory");
  bool const safetensors = fs::exists(directory / "model.safetensors", error) || fs::exists(directory / "model.safetensors.index.json", error);
  if (safetensors) return directory;
  bool const pickled = fs::exists(directory / "pytorch_model.bin", error) || fs::exists(directory / "pytorch_model.bin.index.json", error);
  TESSERA_VALIDATE(!pickled, DataError, directory.string(), " has its weights as pytorch_model.bin only, a pickle that may run code when it is read; ",
                   "convert it where you trust it, with Hugging Face transformers: "
                   "AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW_DIR, safe_serialization=True)");
  throw IoError(concat(directory.string(), " has neither model.safetensors nor model.safetensors.index.json; give a Hugging Face model directory"));
}

}  // namespace

ModelWeights::ModelWeights(fs::path const& model_directory) : reader_(check_directory(model_directory)) {}

std::string ModelWeights::find_name(memory::ParameterSpec const& parameter) const {
  // Weights saved from the bare model lack the head class's prefix ("wte.weight"), others have it where we do not
  static std::string const prefixes[] = {"transformer.", "model."};
  auto names = parameter.aliases;
  names.insert(names.begin(), parameter.name);
  for (auto const& name : names) {
    if (reader_.find(name)) return name;
    for (auto const& prefix : prefixes) {
      if (name.rfind(prefix, 0) == 0 && reader_.find(name.substr(prefix.size()))) return name.substr(prefix.size());
      if (reader_.find(prefix + name)) return prefix + name;
    }
  }
  return "";
}

void ModelWeights::require(std::vector<memory::UnitSpec> const& units) const {
  std::string problems;
  int count = 0;
  for (auto const& unit : units)
    for (auto const& parameter : unit.parameters) {
      std::string const name = find_name(parameter);
      bool const found = !name.empty();
      if (found && reader_.find(name)->shape == parameter.shape) continue;
      if (++count > 10) continue;
      problems += (problems.empty() ? "" : "; ") + parameter.name +
                  (found ? " has shape " + detail::list_text(reader_.find(name)->shape) + ", the model wants " + detail::list_text(parameter.shape) : " is missing");
    }
  if (count > 10) problems += concat("; and ", count - 10, " more");
  TESSERA_VALIDATE(count == 0, DataError, reader_.files()[0].string(), " does not fit config.json: ", problems);
}

void ModelWeights::fill(memory::ParameterSpec const& parameter, std::int64_t first, std::int64_t numel, float* out) const {
  std::string const name = find_name(parameter);
  TESSERA_VALIDATE(!name.empty(), DataError, reader_.files()[0].string(), " has no tensor ", parameter.name);
  reader_.read_as_fp32(name, first, numel, out);
}

}  // namespace tessera::checkpoint
