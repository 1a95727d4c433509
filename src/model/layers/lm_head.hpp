#pragma once
/// Final norm, projection to the vocabulary and cross-entropy with its gradient, in chunks of rows.
/// The complete logits are never in memory, and those of a chunk are in the dtype of products:
/// their gradients take their place.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "layers/norm.hpp"
#include "tessera/kernels/loss/cross_entropy.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/model/layers/batch.hpp"

namespace tessera::model::detail {

class LmHead {
 public:
  /// Weights [V, width] of the projection and where their gradient goes: the head's own, or the
  /// token embedding's.
  struct Projection {
    ConstTensorView weight;
    TensorView gradient;      ///< empty: frozen
    bool accumulate = false;  ///< the gradient has values already
    ConstTensorView bias{};   ///< [V], in the head's own unit; empty: none
    TensorView bias_gradient{};
  };
  struct Options {
    std::int64_t width = 0;
    std::int64_t vocabulary = 0;
    double label_smoothing = 0.0;               ///< see kernels::CrossEntropyOptions
    bool dynamic_loss = false;                  ///< see kernels::CrossEntropyOptions::dynamic
    double soft_cap = 0.0;                      ///< logits x become cap tanh(x / cap); 0: off
    std::optional<std::int64_t> chunk_bytes{};  ///< most bytes of a chunk; none: as below
  };

  LmHead(Norm norm, Options options) : norm_(norm), options_(options) {}
  /// Gives the head its own projection "<name>" in @p unit.
  void own_projection(UnitSpec& unit, std::string const& name, double stddev);
  /// Gives the head a bias "<name>" in @p unit.
  void own_bias(UnitSpec& unit, std::string const& name);
  /// Position of the head's own projection in its unit; empty when it is tied to the embedding.
  std::optional<std::size_t> projection() const { return projection_; }
  std::optional<std::size_t> bias() const { return bias_; }

  struct Input {
    ConstTensorView hidden;     ///< [R, width]
    ConstTensorView targets;    ///< [R] int32; negative: no target
    LogitLoss* loss = nullptr;  ///< null: cross-entropy
    /// In train(), called once the output's values are known, for the factor of the gradients of
    /// each sequence. Empty: all are 1.
    std::function<std::vector<float>()> factors{};
  };
  struct Output {
    TensorView losses;     ///< [R] fp32, overwritten
    TensorView dhidden{};  ///< [R, width], overwritten, scaled by the gradient scale
    /// [R] fp32, overwritten: 1 where the target is the most likely token; or empty.
    TensorView hits{};
    TensorView entropy{},
        means{};  ///< [R] fp32, overwritten, see kernels::token_entropy(); or empty
  };

  /// Losses, bit for bit those of train(), and hits unless empty.
  void losses(PassContext const& pass, WeightLease const& weights, Projection const& projection,
              Output const& to, Input const& from) const;
  /// Computes losses and the gradients of the hidden states, the projection and the norm.
  void train(PassContext const& pass, BackwardLeases const& leases, Projection const& projection,
             float gradient_scale, Output const& to, Input const& from) const;
  /// logits [R, V] fp32.
  void logits(PassContext const& pass, WeightLease const& weights, Projection const& projection,
              TensorView out, ConstTensorView hidden) const;

  /// How [rows, vocabulary] is cut into equal chunks of rows. On the host 64 MiB at a time. On a
  /// device 512 MiB in fp32 and 1 GiB in 16 bits, so that fewer products, each rounded to 16 bits,
  /// add up to the projection's gradient: one up to 10672 rows of V = 50257. There rows are a
  /// multiple of 64 elements, which products and 16-byte accesses need (V = 50257 is odd).
  struct Chunks {
    std::int64_t rows = 0;  ///< at a time
    std::int64_t row = 0;   ///< elements from one row to the next
    static Chunks of(std::int64_t rows, std::int64_t vocabulary, Dtype dtype,
                     memory::MemorySpace space, std::optional<std::int64_t> most = {});
    /// Returns chunks for fp32 logits next to 16-bit gradients: both together need no more memory
    /// than a chunk of 16-bit logits.
    Chunks with_fp32_logits() const;
    bool operator==(Chunks const&) const = default;
  };

 private:
  /// Buffers of a chunk. The gradients are the logits themselves, except next to fp32 logits of
  /// fp16 (which ends at 65504) and of a loss of the caller's own.
  struct Buffers {
    Chunks chunks;
    TensorView logits, dlogits;
  };
  Buffers allocate(PassContext const& pass, std::int64_t rows, LogitLoss const* loss) const;
  /// One chunk of rows.
  struct Chunk {
    std::int64_t first = 0;
    LogitLoss* loss = nullptr;
    TensorView losses, dlogits, logits;  ///< dlogits may be empty
    ConstTensorView normed, targets;
    TensorView hits{}, entropy{}, means{};  ///< may be empty
  };
  static Chunk chunk_of(Output const& to, Input const& from, Buffers const& buffers,
                        ConstTensorView normed, std::int64_t first, std::int64_t count);
  void project(PassContext const& pass, Projection const& projection, Chunk const& chunk) const;
  void score(PassContext const& pass, Projection const& projection, float gradient_scale,
             Chunk const& chunk) const;
  kernels::CrossEntropyOptions loss_options(float gradient_scale) const;
  /// Scores all chunks without gradients.
  void score_chunks(PassContext const& pass, Projection const& projection, Buffers const& buffers,
                    Output const& to, Input const& from, ConstTensorView normed) const;
  /// The gradients of a chunk's logits, those of each sequence times its factor.
  void weigh_sequences(PassContext const& pass, std::vector<float> const& factors,
                       float gradient_scale, Chunk const& chunk) const;
  /// The bias's gradient from the logits' @p dlogits [R, row].
  void backward_bias(PassContext const& pass, kernels::GradientTarget const& to,
                     ConstTensorView dlogits) const;

  Norm norm_;
  Options options_;
  std::optional<std::size_t> projection_, bias_;
};

}  // namespace tessera::model::detail
