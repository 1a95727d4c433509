#include "tessera/checkpoint/interchange/model_weights.hpp"

#include "format/detail/text.hpp"
#include "interchange/detail/torch_weights.hpp"
#include "tessera/checkpoint/interchange/safetensors_reader.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

class SafetensorsWeights final : public detail::WeightFiles {
 public:
  explicit SafetensorsWeights(fs::path const& directory) : reader_(directory) {}
  std::vector<std::int64_t> const* find(std::string const& name) const override {
    auto const* entry = reader_.find(name);
    return entry == nullptr ? nullptr : &entry->shape;
  }
  void read(std::string const& name, std::int64_t first, std::int64_t numel,
            float* out) const override {
    reader_.read_as_fp32(name, first, numel, out);
  }
  std::vector<fs::path> const& files() const override { return reader_.files(); }
  SafetensorsWeights(ConfigTree const& layout, std::vector<int> const& descriptors)
      : reader_(layout, descriptors) {}
  ConfigTree layout() const override { return reader_.layout().set("format", "safetensors"); }

 private:
  SafetensorsReader reader_;
};

std::unique_ptr<detail::WeightFiles> weights_of_layout(ConfigTree const& layout,
                                                       std::vector<int> const& descriptors) {
  TESSERA_EXPECT(layout.at("files").as_array().size() == descriptors.size());
  if (layout.contains("format")) return std::make_unique<SafetensorsWeights>(layout, descriptors);
  return detail::torch_weights_of_layout(layout, descriptors);
}

/// safetensors first, as transformers does.
std::unique_ptr<detail::WeightFiles> open_weights(fs::path const& directory) {
  std::error_code error;
  TESSERA_VALIDATE(fs::is_directory(directory, error), IoError, directory.string(),
                   " is not a directory; give a Hugging Face model directory");
  auto const has = [&](char const* name) { return fs::exists(directory / name, error); };
  if (has("model.safetensors") || has("model.safetensors.index.json"))
    return std::make_unique<SafetensorsWeights>(directory);
  if (has("pytorch_model.bin") || has("pytorch_model.bin.index.json"))
    return detail::open_torch_weights(directory);
  throw IoError(concat(directory.string(),
                       " has neither model.safetensors nor pytorch_model.bin, nor an index of "
                       "either; give a Hugging Face model directory"));
}

}  // namespace

ModelWeights::ModelWeights(fs::path const& model_directory)
    : files_(open_weights(model_directory)) {}
ModelWeights::ModelWeights(std::string const& layout, std::vector<int> const& descriptors)
    : files_(weights_of_layout(ConfigTree::parse(layout, "layout of the weights"), descriptors)) {}
ModelWeights::~ModelWeights() = default;
ModelWeights::ModelWeights(ModelWeights&&) noexcept = default;
ModelWeights& ModelWeights::operator=(ModelWeights&&) noexcept = default;

std::vector<fs::path> const& ModelWeights::files() const { return files_->files(); }
std::string ModelWeights::layout() const { return files_->layout().dump(); }

std::string ModelWeights::find_name(memory::ParameterSpec const& parameter) const {
  // Weights saved from the bare model lack the head class's prefix ("wte.weight"), others have it
  // where we do not
  static std::string const prefixes[] = {"transformer.", "model."};
  auto names = parameter.aliases;
  names.insert(names.begin(), parameter.name);
  for (auto const& name : names) {
    if (files_->find(name)) return name;
    for (auto const& prefix : prefixes) {
      if (name.rfind(prefix, 0) == 0 && files_->find(name.substr(prefix.size())))
        return name.substr(prefix.size());
      if (files_->find(prefix + name)) return prefix + name;
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
      if (found && *files_->find(name) == parameter.shape) continue;
      if (++count > 10) continue;
      problems += (problems.empty() ? "" : "; ") + parameter.name +
                  (found ? " has shape " + detail::list_text(*files_->find(name)) +
                               ", the model wants " + detail::list_text(parameter.shape)
                         : " is missing");
    }
  if (count > 10) problems += concat("; and ", count - 10, " more");
  TESSERA_VALIDATE(count == 0, DataError, files_->files()[0].string(),
                   " does not fit config.json: ", problems);
}

void ModelWeights::fill(memory::ParameterSpec const& parameter, std::int64_t first,
                        std::int64_t numel, float* out) const {
  std::string const name = find_name(parameter);
  TESSERA_VALIDATE(!name.empty(), DataError, files_->files()[0].string(), " has no tensor ",
                   parameter.name);
  files_->read(name, first, numel, out);
}

}  // namespace tessera::checkpoint
