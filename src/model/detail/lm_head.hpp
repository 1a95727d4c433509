#pragma once
/// Final norm, projection to the vocabulary and cross-entropy, in chunks of rows, so that the
/// complete logits are never in memory.

#include <optional>
#include <string>

#include "detail/norm.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/model/causal_lm.hpp"

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
  /// Most bytes of a chunk of fp32 logits, and of 16-bit gradients.
  struct ChunkBytes {
    std::int64_t logits = 0, gradients = 0;
  };
  struct Options {
    std::int64_t width = 0;
    std::int64_t vocabulary = 0;
    double label_smoothing = 0.0;             ///< see kernels::CrossEntropyOptions
    double soft_cap = 0.0;                    ///< logits x become cap tanh(x / cap); 0: off
    std::optional<ChunkBytes> chunk_bytes{};  ///< on a device; none: as below
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
  };
  struct Output {
    TensorView losses;     ///< [R] fp32, overwritten
    TensorView dhidden{};  ///< [R, width], overwritten, scaled by the gradient scale
    /// [R] fp32, overwritten: 1 where the target is the most likely token; or empty.
    TensorView hits{};
  };

  /// Losses, and hits unless empty.
  void losses(PassContext const& pass, WeightLease const& weights, Projection const& projection,
              Output const& to, Input const& from) const;
  /// The same, and the gradients of the hidden states, the projection and the norm.
  void train(PassContext const& pass, BackwardLeases const& leases, Projection const& projection,
             float gradient_scale, Output const& to, Input const& from) const;
  /// logits [R, V] fp32.
  void logits(PassContext const& pass, WeightLease const& weights, Projection const& projection,
              TensorView out, ConstTensorView hidden) const;

  /// How [rows, vocabulary] is cut into equal chunks of rows. On the host 64 MiB of fp32 logits at
  /// a time, which their gradients follow. On a device 512 MiB, in rows of a multiple of 64
  /// elements, which products and 16-byte accesses need (V = 50257 is odd); and 1 GiB of 16-bit
  /// gradients, so that fewer products, each rounded to 16 bits, add up to the projection's
  /// gradient: one up to 10672 rows of V = 50257.
  struct Chunks {
    std::int64_t logits = 0;  ///< rows of logits at a time
    std::int64_t gradients =
        0;  ///< rows of their gradients at a time; in fp32 they take the place of the logits
    std::int64_t row = 0;  ///< elements from one row to the next
    static Chunks of(std::int64_t rows, std::int64_t vocabulary, Dtype dtype,
                     memory::MemorySpace space, std::optional<ChunkBytes> most = {});
    bool operator==(Chunks const&) const = default;
  };

 private:
  Chunks chunks_of(PassContext const& pass, std::int64_t rows) const {
    return Chunks::of(rows, options_.vocabulary, pass.dtype, memory::memory_space_of(pass.compute),
                      options_.chunk_bytes);
  }
  /// One chunk of rows.
  struct Chunk {
    std::int64_t first = 0;
    LogitLoss* loss = nullptr;
    TensorView losses, dlogits, logits;  ///< dlogits may be empty
    ConstTensorView normed, targets;
    TensorView hits{};  ///< may be empty
  };
  void score(PassContext const& pass, Projection const& projection, float gradient_scale,
             Chunk const& chunk) const;
  /// The bias's gradient from the logits' @p dlogits [R, row].
  void backward_bias(PassContext const& pass, kernels::GradientTarget const& to,
                     ConstTensorView dlogits) const;

  Norm norm_;
  Options options_;
  std::optional<std::size_t> projection_, bias_;
};

}  // namespace tessera::model::detail
