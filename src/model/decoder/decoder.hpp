#pragma once
/// Decoder-only language model: embedding, layers, head. Families differ in how they fill in the
/// parts.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decoder/decoder_layer.hpp"
#include "decoder/host_checkpoints.hpp"
#include "layers/embedding.hpp"
#include "layers/float8_scales.hpp"
#include "layers/host_staging.hpp"
#include "layers/lm_head.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/model/decoder/causal_lm.hpp"

namespace tessera::model::detail {

/// Unit 0 is the embedding, units 1..L the layers, unit L+1 the head.
struct DecoderParts {
  std::string family;
  ConfigTree config;
  Dtype dtype;          ///< dtype of weights, gradients and the residual stream
  Dtype product_dtype;  ///< dtype of matrix products and the activations between them
  bool fp8;             ///< linear layers of the layers multiply in fp8 in training
  std::int64_t width;
  std::int64_t positions;
  std::string positions_field;  ///< field of config.json
  std::vector<UnitSpec> units;
  Embedding embedding;
  std::vector<std::unique_ptr<DecoderLayer>> layers;
  LmHead head;
  std::optional<kernels::RotaryOptions> rotary;  ///< rotation of a model whose heads are rotated
  /// Dimensions of the key/value cache: layers of attention, and the heads of each. No layers: the
  /// model does not generate.
  std::int64_t cached_layers = 0, kv_heads = 0, head_dim = 0;
  DocumentOptions documents{};
  std::int64_t head_outputs = 0;  ///< outputs of a head of the caller's own; 0: the vocabulary
  std::string head_name{}, replaced_head{};
};

class Decoder final : public CausalLm {
 public:
  explicit Decoder(DecoderParts parts);

  std::vector<UnitSpec> const& units() const override { return parts_.units; }
  std::string_view family() const override { return parts_.family; }
  ConfigTree const& config() const override { return parts_.config; }
  std::int64_t vocabulary_size() const override { return parts_.embedding.vocabulary(); }
  std::int64_t max_positions() const override { return parts_.positions; }
  std::int64_t predictions(Batch const& batch) const override {
    if (has_own_head()) return batch.rows;
    if (batch.labels) return count_labels(batch.labels, batch.rows, batch.sequence);
    return count_predictions({batch.tokens, batch.rows, batch.sequence}, parts_.documents);
  }
  bool predictions_vary() const override {
    return !has_own_head() && parts_.documents.eod_mask_loss;
  }
  ParameterChanges parameter_changes() const override;

  LossSum train(Batch const& batch, PassSettings const& settings, memory::ParamProvider& params,
                Queue& compute) override;
  LossSum evaluate(Batch const& batch, memory::WeightProvider& params, Queue& compute) override;
  std::unique_ptr<KeyValueCache> make_cache(std::int64_t rows, std::int64_t positions,
                                            Queue& compute) const override;
  std::vector<float> decode(DecodeBatch const& batch, KeyValueCache& cache,
                            memory::WeightProvider& params, Queue& compute) override;
  void decode_nothing(memory::WeightProvider& params, Queue& compute) override;
  std::size_t activation_bytes(PlannedPass const& pass, memory::MemorySpace space) override;
  std::size_t host_checkpoint_bytes(PlannedPass const& pass) const override;
  void reserve_activations(std::size_t bytes, Queue& compute) override;

 private:
  /// The activations of a block that the forward pass keeps for the backward pass.
  struct Kept {
    TensorView in;
    std::unique_ptr<DecoderLayer::Saved> saved;  ///< null under Recompute::block
    Arena::Mark mark;                            ///< mark of the arena before the block
  };

  bool has_own_head() const { return parts_.head_outputs > 0; }
  bool tied() const { return !parts_.head.projection(); }
  bool token_weights_train() const;
  /// The backward pass ends at this unit: none below it trains.
  UnitIndex first_trained() const;
  static constexpr UnitIndex embedding_unit = memory::first_unit;
  static constexpr UnitIndex unit_of_block(std::size_t block) {
    return UnitIndex(static_cast<int>(block) + 1);
  }
  /// The blocks with a backward pass.
  HostCheckpoints::Blocks trained_blocks() const;
  UnitIndex head_unit() const { return unit_of_block(parts_.layers.size()); }
  std::vector<UnitIndex> acquisitions(memory::Pass kind) const;
  void check(Batch const& batch) const;
  bool measures_tokens(Batch const& batch) const;
  std::int64_t longest_document(Batch const& batch) const;
  void check_tokens(std::int32_t const* tokens, std::int64_t rows, std::int64_t sequence) const;
  void check(DecodeBatch const& batch, KeyValueCache const& cache) const;
  /// Buffers of a pass, in the memory space of a queue's kernels.
  struct PassBuffers {
    Arena arena;
    PinnedInputBuffers inputs;
    LossReadback losses;
    std::optional<RotaryStaging> rotary;
    HostCheckpoints checkpoints;
    Float8Scales float8_scales;
  };
  PassBuffers make_buffers(std::string const& name, memory::MemorySpace space) const;
  PassBuffers& buffers_for(Queue const& compute);
  PassContext begin(Batch const& batch, PassBuffers& place, Queue& compute) const;
  /// Stages the inputs of a pass and notes its documents and dropout in it.
  Inputs stage(PassContext& pass, PassBuffers& place, Batch const& batch, PassKind kind) const;
  LossSum train_in(PassBuffers& place, Batch const& batch, PassSettings const& settings,
                   memory::ParamProvider& params, Queue& compute);
  LossSum evaluate_in(PassBuffers& place, Batch const& batch, memory::WeightProvider& params,
                      Queue& compute);

  /// Hidden states of the last block without keeping anything.
  TensorView run_forward(PassContext const& pass, ConstTensorView tokens,
                         memory::WeightProvider& params) const;
  /// The hidden states of each row's last token.
  TensorView last_of_rows(PassContext const& pass, DecodeBatch const& batch,
                          TensorView hidden) const;
  TensorView forward_keeping(PassContext const& pass, PassSettings const& settings,
                             Inputs const& inputs, memory::ParamProvider& params);
  void train_head(PassContext const& pass, float gradient_scale, LmHead::Output const& to,
                  LmHead::Input const& from, memory::ParamProvider& params) const;
  /// The sum of the token losses, or the loss of the batch's rows.
  LossSum loss_of(PassBuffers& place, Batch const& batch, ConstTensorView losses,
                  Queue& compute) const;
  void backward_blocks(PassContext const& pass, PassSettings const& settings, TensorView stream,
                       memory::ParamProvider& params);
  void backward_embedding(PassContext const& pass, Inputs const& inputs, ConstTensorView stream,
                          memory::ParamProvider& params) const;

  DecoderParts parts_;
  std::optional<PassBuffers> on_host_, on_device_;  ///< created for the first queue of their kind
  std::vector<Kept> kept_;
};

}  // namespace tessera::model::detail
