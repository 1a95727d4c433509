#pragma once
/// The model families, by the model_type of a Hugging Face config.json.

#include <memory>
#include <optional>
#include <string>

#include "tessera/core/config_tree.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/model/decoder/causal_lm.hpp"
#include "tessera/model/layers/documents.hpp"
#include "tessera/model/layers/lora.hpp"

namespace tessera::model {

/// A head in place of the one for the vocabulary: a linear layer without a bias on the normalized
/// hidden states of all positions. A LogitLoss gets its outputs as logits; the mean loss is divided
/// by the rows. Such a model does not generate text.
struct HeadOptions {
  std::string name = "score.weight";  ///< as in Hugging Face's models for sequence classification
  std::int64_t outputs = 1;           ///< num_labels
  std::string architecture{};         ///< for config.json: "LlamaForSequenceClassification"
};

/// How a model computes. Made from a dtype: weights and products have it, all else is off.
struct ModelOptions {
  ModelOptions(Dtype of_everything)  // NOLINT(google-explicit-constructor)
      : dtype(of_everything), product_dtype(of_everything) {}
  /// Autocast when they differ: fp32 weights and residual stream, 16-bit products.
  ModelOptions(Dtype of_weights, Dtype of_products)
      : dtype(of_weights), product_dtype(of_products) {}

  Dtype dtype;                        ///< dtype of weights, gradients and the residual stream
  Dtype product_dtype;                ///< dtype of matrix products and the activations between them
  bool fp8 = false;                   ///< linear layers of blocks multiply in fp8 in training
  double label_smoothing = 0.0;       ///< see kernels::CrossEntropyOptions
  bool dynamic_loss = false;          ///< see kernels::CrossEntropyOptions
  double neftune_noise_alpha = 0.0;   ///< noise on the embeddings in training; 0: none
  std::optional<LoraOptions> lora{};  ///< adapters train, all other parameters are frozen
  std::string frozen_parameters{};    ///< regular expression of complete names; empty: none
  std::optional<HeadOptions> head{};  ///< in place of that for the vocabulary
  DocumentOptions documents{};        ///< documents of packed rows, in training and evaluation
};

/// Builds a model from a Hugging Face config.json.
/// @throws ConfigError naming model_type or the field that is missing, unsupported or contradictory
std::unique_ptr<CausalLm> make_model(ConfigTree const& hf_config, ModelOptions const& options);

/// run_clm's --config_overrides "n_embd=256,n_layer=4" applied to a configuration; values take the
/// type of the field they replace.
ConfigTree apply_overrides(ConfigTree config, std::string const& overrides);

/// The hidden size in a Hugging Face config.json, without building the model; 0: it names none.
std::int64_t hidden_size(ConfigTree const& hf_config);

/// Default config.json of a model_type, as Hugging Face's config class has it.
ConfigTree default_config(std::string const& model_type);

}  // namespace tessera::model
