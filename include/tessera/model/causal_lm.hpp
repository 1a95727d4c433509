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
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/param_provider.hpp"

namespace tessera::model {

/// One micro-batch of sequences of equal length. The labels are the tokens, shifted inside the
/// model.
struct Batch {
  std::int32_t const* tokens = nullptr;  ///< [rows, sequence]
  std::int64_t rows = 0;
  std::int64_t sequence = 0;
  /// Index of the first row in the step's global batch; rows are consecutive. Dropout masks depend
  /// on it, not on the rank.
  std::int64_t first_global_row = 0;
};

/// Settings of a pass.
struct PassSettings {
  std::uint64_t dropout_seed = 0;
  std::uint64_t step = 0;       ///< optimizer step, part of the dropout stream
  float gradient_scale = 1.0f;  ///< loss scale / predicted tokens of the global batch: d(sum of
                                ///< token losses) is multiplied by it
  bool gradient_checkpointing =
      false;  ///< keep only each block's input and recompute the block in backward
  /// Called before each block's forward and backward and before the head; the pass ends with the
  /// exception that it throws.
  std::function<void()> between_layers{};
};

/// A pass whose memory is wanted.
struct PlannedPass {
  memory::Pass kind = memory::Pass::training;
  std::int64_t rows = 0;
  std::int64_t sequence = 0;
  bool gradient_checkpointing = false;
  /// Gives weights and takes gradients of the planned pass; null: nobody counts theirs.
  memory::ParamProvider* params = nullptr;
};

/// Sum of the token losses (natural log) of a micro-batch over its rows * (sequence - 1)
/// predictions. Available once the queue has executed this point.
class LossSum {
 public:
  LossSum(std::shared_ptr<double const> value, memory::Event known)
      : value_(std::move(value)), known_(std::move(known)) {}
  /// Waits for the queue and rethrows an exception of its work.
  double value() const;

 private:
  std::shared_ptr<double const> value_;
  memory::Event known_;
};

class CausalLm {
 public:
  virtual ~CausalLm() = default;

  virtual std::vector<memory::UnitSpec> const& units() const = 0;
  virtual std::string_view family() const = 0;  ///< "gpt2"
  /// Hugging Face config.json of this model.
  virtual ConfigTree const& config() const = 0;
  virtual std::int64_t vocabulary_size() const = 0;
  virtual std::int64_t max_positions() const = 0;

  /// Forward and backward pass of one micro-batch, with weights and gradients from @p params.
  /// Enqueues work on @p compute and does not wait for it: a step can enqueue all micro-batches
  /// before it reads the first sum.
  virtual LossSum train(Batch const& batch, PassSettings const& settings,
                        memory::ParamProvider& params, memory::Queue& compute) = 0;
  /// Forward only, no dropout.
  virtual LossSum evaluate(Batch const& batch, memory::ParamProvider& params,
                           memory::Queue& compute) = 0;
  /// Logits of the last position of each row, fp32 [rows, vocabulary], for generation.
  virtual std::vector<float> next_token_logits(Batch const& batch, memory::ParamProvider& params,
                                               memory::Queue& compute) = 0;

  /// Bytes of activations and workspaces that a pass keeps at most. Makes the allocations of the
  /// pass without memory and without kernels.
  virtual std::size_t activation_bytes(PlannedPass const& pass, memory::MemorySpace space) = 0;
  /// Allocates that memory before the first pass on @p compute.
  virtual void reserve_activations(std::size_t bytes, memory::Queue& compute) = 0;
};

}  // namespace tessera::model
