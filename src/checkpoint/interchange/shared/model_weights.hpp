#pragma once
/// The weights of a Hugging Face model directory.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tessera/memory/param_provider.hpp"

namespace tessera::checkpoint {

namespace detail {
class WeightFiles;
}

/// The weights of a Hugging Face model directory, looked up by parameter: safetensors, else
/// pytorch_model.bin (read as data, nothing in it is executed), each single or sharded.
class ModelWeights {
 public:
  /// @param model_directory or one .safetensors or .bin file
  /// @throws DataError when files are malformed, IoError when the directory has neither
  explicit ModelWeights(std::filesystem::path const& model_directory);
  /// The weights that another process has looked up, from its layout() and descriptors of its
  /// files() (owned from here on).
  ModelWeights(std::string const& layout, std::vector<int> const& descriptors);
  ~ModelWeights();
  ModelWeights(ModelWeights&&) noexcept;
  ModelWeights& operator=(ModelWeights&&) noexcept;

  /// Checks that every parameter is there (under its name, an alias, or either without or with the
  /// leading "transformer.", "model." or "gpt_neox.") with its shape. @throws DataError listing
  /// what is missing or has another shape
  /// @param removed  names of tensors that the model does without on purpose
  /// @param stored_vocabulary  rows of an embedding that the model has more of; 0: it has no more
  /// @return the tensors that are not in the model, apart from constants that older versions of
  /// transformers saved; empty: none
  std::string require(std::vector<memory::UnitSpec> const& units,
                      std::vector<std::string> const& removed = {},
                      std::int64_t stored_vocabulary = 0) const;
  /// The alias under which a parameter is stored a second time with other values, as the head of a
  /// model that was tied by mistake; empty: none.
  std::string different_alias(std::vector<memory::UnitSpec> const& units) const;
  /// Checks that an adapter's file has parameters under all their names, as PEFT writes tied
  /// modules. @throws DataError where a name is missing, or has other values
  void require_copies(std::vector<memory::UnitSpec> const& units) const;
  bool has(memory::ParameterSpec const& parameter) const { return !find_name(parameter).empty(); }
  /// Returns the stored shape of a parameter; empty when it is not stored.
  std::vector<std::int64_t> shape_of(memory::ParameterSpec const& parameter) const;
  /// Whether the model has more rows of a parameter than the files, which have @p stored of them.
  bool lacks_rows(memory::ParameterSpec const& parameter, std::int64_t stored) const;
  /// The mean of the rows that the files have of a parameter, summed in fp64: the start of rows
  /// that the model has in addition.
  std::vector<float> mean_row(memory::ParameterSpec const& parameter) const;
  std::vector<std::filesystem::path> const& files() const;
  std::string layout() const;
  /// Elements [first, first + numel) of a parameter, as fp32: what zero::Engine::Fill asks for.
  void fill(memory::ParameterSpec const& parameter, std::int64_t first, std::int64_t numel,
            float* out) const;
  /// As fill(), of a parameter with more rows than the files: those are @p mean.
  void fill_grown(memory::ParameterSpec const& parameter, std::vector<float> const& mean,
                  std::int64_t first, std::int64_t numel, float* out) const;

 private:
  std::string find_name(memory::ParameterSpec const& parameter) const;  ///< empty: not there
  bool are_equal(std::string const& one, std::string const& other) const;
  std::unique_ptr<detail::WeightFiles> files_;
};

/// Whether a directory has the weights of a Hugging Face model.
bool has_model_weights(std::filesystem::path const& directory);

/// The weights in a directory of PEFT: adapter_model.safetensors, else adapter_model.bin, as PEFT
/// wrote before 0.7. @throws IoError when it has neither
std::filesystem::path adapter_weights_file(std::filesystem::path const& directory);

/// Files of a model directory that are no weights and that Hugging Face programs read: those of the
/// tokenizer (also its chat templates and lists of tokens), or of the model (generation_config.json
/// and the configurations of processors). Absolute names if @p directory is one.
enum class Companions { tokenizer, model };
std::vector<std::filesystem::path> companion_files(std::filesystem::path const& directory,
                                                   Companions which);
/// Whether a directory has the vocabulary of a tokenizer.
bool has_vocabulary(std::filesystem::path const& directory);
/// The name of such a file in a model directory: the files of additional_chat_templates keep that
/// directory.
std::filesystem::path companion_name(std::filesystem::path const& file);

}  // namespace tessera::checkpoint
