#pragma once
/// A causal language model as a list of units; forward and backward are lists of kernel calls per
/// unit.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tessera/core/recompute.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/param_provider.hpp"
#include "tessera/model/layers/batch.hpp"

namespace tessera::model {

/// Settings of a pass.
struct PassSettings {
  bool dropout = true;  ///< with the noise of NEFTune
  std::uint64_t dropout_seed = 0;
  std::uint64_t step = 0;       ///< optimizer step, part of the dropout stream
  float gradient_scale = 1.0f;  ///< loss scale / predictions of the global batch: d(sum of token
                                ///< losses) is multiplied by it
  Recompute recompute = Recompute::none;
  /// Keeps the inputs of blocks in host memory, with Recompute::block on a device.
  bool cpu_checkpointing = false;
  /// Called before each block's forward and backward and before the head; the pass ends with the
  /// exception that it throws.
  std::function<void()> between_layers{};
};

/// A pass whose memory is wanted.
struct PlannedPass {
  memory::Pass kind = memory::Pass::training;
  std::int64_t rows = 0;
  std::int64_t sequence = 0;
  Recompute recompute = Recompute::none;
  /// Gives weights and takes gradients of a planned training pass; null: nobody counts theirs.
  memory::ParamProvider* params = nullptr;
  /// Gives weights of a planned evaluation; null: nobody counts theirs.
  memory::WeightProvider* weights = nullptr;
  bool cpu_checkpointing = false;
  bool measures_tokens = false;  ///< with Batch::metrics
};

/// New tokens of rows of text. Rows with fewer tokens than the longest are padded at the end: a row
/// sees nothing of its own padding and nothing of other rows.
struct DecodeBatch {
  std::int32_t const* tokens = nullptr;  ///< [rows, queries]
  std::int64_t rows = 0;
  std::int64_t queries = 0;
  std::int32_t const* first = nullptr;   ///< [rows] position of each row's first token here
  std::int32_t const* counts = nullptr;  ///< [rows] its tokens without padding, at least 1
};

/// The keys and values of the positions that decode() has computed, of all layers.
class KeyValueCache {
 public:
  virtual ~KeyValueCache() = default;
  virtual std::int64_t rows() const = 0;
  virtual std::int64_t positions() const = 0;  ///< positions of each row, padding included
  virtual std::size_t bytes() const = 0;
};

/// How the parameters of a model differ from those in files of its family.
struct ParameterChanges {
  std::vector<std::string> added;    ///< random where the files lack them
  std::vector<std::string> removed;  ///< ignored in the files
};

/// A causal language model: its units, and its passes with weights from a provider.
class CausalLm {
 public:
  virtual ~CausalLm() = default;

  virtual std::vector<memory::UnitSpec> const& units() const = 0;
  virtual std::string_view family() const = 0;  ///< "gpt2"
  /// Hugging Face config.json of this model.
  virtual ConfigTree const& config() const = 0;
  virtual std::int64_t vocabulary_size() const = 0;
  virtual std::int64_t max_positions() const = 0;
  virtual ParameterChanges parameter_changes() const { return {}; }
  /// What the mean of a batch's losses is divided by. The default: all tokens of a row but the
  /// first are predicted.
  virtual std::int64_t predictions(Batch const& batch) const {
    return batch.rows * (batch.sequence - 1);
  }
  /// predictions() depends on the tokens, so that ranks add their counts before each step.
  virtual bool predictions_vary() const { return false; }

  /// Forward and backward pass of one micro-batch, with weights and gradients from @p params.
  /// Enqueues work on @p compute and does not wait for it: a step can enqueue all micro-batches
  /// before it reads the first sum.
  virtual LossSum train(Batch const& batch, PassSettings const& settings,
                        memory::ParamProvider& params, memory::Queue& compute) = 0;
  /// Forward only, no dropout.
  virtual LossSum evaluate(Batch const& batch, memory::WeightProvider& params,
                           memory::Queue& compute) = 0;
  /// An empty cache in the memory space of @p compute.
  /// @throws ConfigError for more positions than the model has
  virtual std::unique_ptr<KeyValueCache> make_cache(std::int64_t rows, std::int64_t positions,
                                                    memory::Queue& compute) const = 0;
  /// Logits of each row's last token, fp32 [rows, vocabulary], for generation. Reads the row's
  /// positions before `first` from @p cache and writes those of the batch. Positions from `first +
  /// counts` on may be written again later. Waits for the queue.
  virtual std::vector<float> decode(DecodeBatch const& batch, KeyValueCache& cache,
                                    memory::WeightProvider& params, memory::Queue& compute) = 0;
  /// Acquires what decode() acquires and computes nothing: for a rank without rows.
  virtual void decode_nothing(memory::WeightProvider& params, memory::Queue& compute) = 0;

  /// Bytes of activations and workspaces that a pass keeps at most. Makes the allocations of the
  /// pass without memory and without kernels.
  virtual std::size_t activation_bytes(PlannedPass const& pass, memory::MemorySpace space) = 0;
  /// Bytes of activations that such a pass on a device keeps in host memory.
  virtual std::size_t host_checkpoint_bytes(PlannedPass const& pass) const {
    (void)pass;
    return 0;
  }
  /// Allocates that memory before the first pass on @p compute.
  virtual void reserve_activations(std::size_t bytes, memory::Queue& compute) = 0;
};

/// Initial weights are a function of (seed, parameter name, element): the same for every number of
/// ranks and every partitioning.
/// Fills @p out (fp32, `numel` elements of the parameter from element `first`) with the parameter's
/// initial values. Each value depends on (seed, parameter name, element) only, so every
/// partitioning starts from the same weights.
void initialize_parameter(memory::ParameterSpec const& spec, std::uint64_t seed, std::int64_t first,
                          std::int64_t numel, float* out);

}  // namespace tessera::model
