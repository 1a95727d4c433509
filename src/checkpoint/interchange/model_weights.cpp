#include "tessera/checkpoint/interchange/model_weights.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include "format/detail/json_reader.hpp"
#include "interchange/detail/training_source.hpp"
#include "interchange/detail/weight_files.hpp"
#include "tessera/checkpoint/interchange/safetensors_reader.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

fs::path const chat_templates = "additional_chat_templates";

class SafetensorsWeights final : public detail::WeightFiles {
 public:
  explicit SafetensorsWeights(fs::path const& directory) : reader_(directory) {}
  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (auto const& [name, entry] : reader_.entries()) out.push_back(name);
    return out;
  }
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
  if (directory.extension() == ".safetensors" && fs::is_regular_file(directory, error))
    return std::make_unique<SafetensorsWeights>(directory);
  if (directory.extension() == ".bin" && fs::is_regular_file(directory, error))
    return detail::open_torch_weights(directory);
  TESSERA_VALIDATE(fs::is_directory(directory, error), IoError, directory.string(),
                   " is not a directory; give a Hugging Face model directory");
  auto const has = [&](char const* name) { return fs::exists(directory / name, error); };
  if (has("model.safetensors") || has("model.safetensors.index.json"))
    return std::make_unique<SafetensorsWeights>(directory);
  if (has("pytorch_model.bin") || has("pytorch_model.bin.index.json"))
    return detail::open_torch_weights(directory);
  throw IoError(
      concat(directory.string(),
             " has neither model.safetensors nor pytorch_model.bin, nor an index of "
             "either; give a Hugging Face model directory with weights, or train from random "
             "weights with --config_name in place of --model_name_or_path"));
}

/// A list of at most ten problems.
class Problems {
 public:
  void add(std::string const& problem) {
    if (++count_ <= 10) text_ += (text_.empty() ? "" : "; ") + problem;
  }
  bool none() const { return count_ == 0; }
  std::string text() const {
    return count_ > 10 ? concat(text_, "; and ", count_ - 10, " more") : text_;
  }

 private:
  std::string text_;
  int count_ = 0;
};

}  // namespace

/// transformers 5.24: what tokenizers, processors and generation load besides the weights.
std::vector<fs::path> companion_files(fs::path const& directory, Companions which) {
  static std::vector<char const*> const of_tokenizer{"tokenizer.json",
                                                     "tokenizer_config.json",
                                                     "special_tokens_map.json",
                                                     "added_tokens.json",
                                                     "vocab.json",
                                                     "merges.txt",
                                                     "vocab.txt",
                                                     "tokenizer.model",
                                                     "spiece.model",
                                                     "chat_template.jinja",
                                                     "chat_template.json"};
  static std::vector<char const*> const of_model{"generation_config.json", "processor_config.json",
                                                 "preprocessor_config.json",
                                                 "video_preprocessor_config.json"};
  std::vector<fs::path> out;
  std::error_code error;
  for (auto const* name : which == Companions::tokenizer ? of_tokenizer : of_model)
    if (fs::is_regular_file(directory / name, error)) out.push_back(directory / name);
  if (which == Companions::model) return out;
  for (auto const& entry : fs::directory_iterator(directory / chat_templates, error))
    if (entry.path().extension() == ".jinja") out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

bool has_vocabulary(fs::path const& directory) {
  std::error_code error;
  return std::ranges::any_of(
      std::initializer_list<char const*>{"tokenizer.json", "vocab.json", "tokenizer.model",
                                         "spiece.model", "vocab.txt"},
      [&](char const* name) { return fs::is_regular_file(directory / name, error); });
}

fs::path companion_name(fs::path const& file) {
  bool const is_template = file.parent_path().filename() == chat_templates;
  return is_template ? chat_templates / file.filename() : file.filename();
}

bool has_model_weights(fs::path const& directory) {
  std::error_code error;
  return std::ranges::any_of(
      std::initializer_list<char const*>{"model.safetensors", "model.safetensors.index.json",
                                         "pytorch_model.bin", "pytorch_model.bin.index.json"},
      [&](char const* name) { return fs::exists(directory / name, error); });
}

fs::path adapter_weights_file(fs::path const& directory) {
  std::error_code error;
  for (char const* name : {"adapter_model.safetensors", "adapter_model.bin"})
    if (fs::exists(directory / name, error)) return directory / name;
  throw IoError(concat("the adapter ", directory.string(),
                       " has neither adapter_model.safetensors nor adapter_model.bin; give a "
                       "directory that PEFT's save_pretrained or a run with --use_peft_lora has "
                       "written"));
}

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
  for (auto const& name : detail::possible_names(parameter))
    if (files_->find(name)) return name;
  return "";
}

std::vector<std::int64_t> ModelWeights::shape_of(memory::ParameterSpec const& parameter) const {
  std::string const name = find_name(parameter);
  return name.empty() ? std::vector<std::int64_t>() : *files_->find(name);
}

std::string ModelWeights::require(std::vector<memory::UnitSpec> const& units,
                                  std::vector<std::string> const& removed,
                                  std::int64_t stored_vocabulary) const {
  Problems problems, unused;
  std::set<std::string> known(removed.begin(), removed.end());
  for (auto const& unit : units)
    for (auto const& parameter : unit.parameters) {
      for (auto const& name : detail::possible_names(parameter)) known.insert(name);
      std::string const name = find_name(parameter);
      if (name.empty())
        problems.add(parameter.name + " is missing");
      else if (*files_->find(name) != parameter.shape && !lacks_rows(parameter, stored_vocabulary))
        problems.add(concat(parameter.name, " has shape ", detail::list_text(*files_->find(name)),
                            ", the model wants ", detail::list_text(parameter.shape)));
    }
  for (auto const& name : files_->names())
    if (!known.contains(name) && !detail::is_saved_constant(name))
      unused.add(detail::printable(name));
  TESSERA_VALIDATE(problems.none(), DataError, files_->files()[0].string(),
                   " does not fit config.json: ", problems.text(),
                   unused.none() ? "" : "; not in the model: ", unused.text());
  return unused.text();
}

bool ModelWeights::lacks_rows(memory::ParameterSpec const& parameter, std::int64_t stored) const {
  if (stored == 0 || parameter.shape[0] <= stored) return false;
  auto smaller = parameter.shape;
  smaller[0] = stored;
  return shape_of(parameter) == smaller;
}

std::vector<float> ModelWeights::mean_row(memory::ParameterSpec const& parameter) const {
  constexpr std::int64_t rows_at_a_time = 1024;
  std::int64_t const stored = shape_of(parameter).at(0),
                     width = parameter.numel() / parameter.shape[0];
  std::vector<double> sum(static_cast<std::size_t>(width), 0.0);
  std::vector<float> part(static_cast<std::size_t>(width * rows_at_a_time)), mean;
  for (std::int64_t row = 0; row < stored; row += rows_at_a_time) {
    std::int64_t const numel = std::min(rows_at_a_time, stored - row) * width;
    fill(parameter, row * width, numel, part.data());
    for (std::int64_t i = 0; i < numel; ++i)
      sum[static_cast<std::size_t>(i % width)] += part[static_cast<std::size_t>(i)];
  }
  for (double const total : sum)
    mean.push_back(static_cast<float>(total / static_cast<double>(stored)));
  return mean;
}

bool ModelWeights::are_equal(std::string const& one, std::string const& other) const {
  if (*files_->find(one) != *files_->find(other)) return false;
  constexpr std::int64_t most = std::int64_t{1} << 20;
  std::int64_t numel = 1;
  for (auto const dim : *files_->find(one)) numel *= dim;
  std::vector<float> a(static_cast<std::size_t>(std::min(numel, most))), b(a.size());
  for (std::int64_t first = 0; first < numel; first += most) {
    std::int64_t const count = std::min(most, numel - first);
    files_->read(one, first, count, a.data());
    files_->read(other, first, count, b.data());
    if (std::memcmp(a.data(), b.data(), static_cast<std::size_t>(count) * sizeof a[0]) != 0)
      return false;
  }
  return true;
}

std::string ModelWeights::different_alias(std::vector<memory::UnitSpec> const& units) const {
  for (auto const& unit : units)
    for (auto const& parameter : unit.parameters) {
      memory::ParameterSpec one = parameter;
      one.aliases.clear();
      std::string const stored = find_name(one);
      for (auto const& alias : parameter.aliases) {
        one.name = alias;
        std::string const again = find_name(one);
        if (!stored.empty() && !again.empty() && again != stored && !are_equal(stored, again))
          return again;
      }
    }
  return "";
}

void ModelWeights::require_copies(std::vector<memory::UnitSpec> const& units) const {
  std::string const file = files_->files()[0].string();
  constexpr char untied[] =
      "; such an adapter is of an embedding and a head that PEFT trained apart, which this model "
      "has as one: train it with both in modules_to_save and ensure_weight_tying=True";
  for (auto const& unit : units)
    for (auto const& parameter : unit.parameters) {
      memory::ParameterSpec one = parameter;
      one.aliases.clear();
      for (auto const& alias : parameter.aliases) {
        bool const is_here = has(one);
        one.name = alias;
        TESSERA_VALIDATE(is_here && has(one), DataError, file, " lacks ",
                         is_here ? alias : parameter.name, untied);
      }
    }
  std::string const other = different_alias(units);
  TESSERA_VALIDATE(other.empty(), DataError, file, " has other values of ", other,
                   " than under its other name", untied);
}

void ModelWeights::fill(memory::ParameterSpec const& parameter, std::int64_t first,
                        std::int64_t numel, float* out) const {
  std::string const name = find_name(parameter);
  TESSERA_VALIDATE(!name.empty(), DataError, files_->files()[0].string(), " has no tensor ",
                   parameter.name);
  files_->read(name, first, numel, out);
}

void ModelWeights::fill_grown(memory::ParameterSpec const& parameter,
                              std::vector<float> const& mean, std::int64_t first,
                              std::int64_t numel, float* out) const {
  auto const width = static_cast<std::int64_t>(mean.size());
  std::int64_t const in_files =
      std::clamp<std::int64_t>(shape_of(parameter).at(0) * width - first, 0, numel);
  if (in_files > 0) fill(parameter, first, in_files, out);
  for (std::int64_t i = in_files; i < numel; ++i)
    out[i] = mean[static_cast<std::size_t>((first + i) % width)];
}

}  // namespace tessera::checkpoint
