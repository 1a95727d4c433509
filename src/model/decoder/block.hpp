#pragma once
/// Transformer block: attention and a perceptron, each with a norm before it, after it or both, and
/// added to the residual stream one after the other or together.

#include <optional>

#include "layers/attention.hpp"
#include "layers/mlp.hpp"
#include "layers/norm.hpp"

namespace tessera::model::detail {

/// How the two branches join the residual stream, with a(x) = after(attention(before(x))) and m(x)
/// = after(mlp(before(x))).
enum class Residual {
  sequential,  ///< x1 = x + a(x);  out = x1 + m(x1). Radford et al., "Language Models are
               ///< Unsupervised Multitask Learners", 2019, section 2.3.
  parallel     ///< out = x + a(x) + m(x). Wang & Komatsuzaki, "GPT-J-6B", 2021.
};

/// The norms of a block; an absent one passes its input on.
struct BlockNorms {
  std::optional<Norm> before_attention, after_attention;
  /// A parallel block without a norm before the perceptron gives it what attention gets.
  std::optional<Norm> before_mlp, after_mlp;
};

class Block {
 public:
  struct Options {
    int layer = 0;
    std::int64_t width = 0;
    double residual_dropout = 0.0;
    Residual residual = Residual::sequential;
  };
  /// Activations that backward needs besides the block's input: 15 * R * width elements for GPT-2,
  /// of which 6 are in buffers that blocks share under light recomputation.
  struct Saved {
    CausalSelfAttention::Saved attention;
    Mlp::Saved mlp;
    Norm::Saved before_attention, after_attention, before_mlp, after_mlp;
    ConstTensorView attention_in, mlp_in;  ///< inputs of attention and mlp
    TensorView attention_out, mlp_out;     ///< inputs of the norms after them
    TensorView middle;                     ///< x1 of a sequential block
  };

  Block(Options options, BlockNorms norms, CausalSelfAttention attention, Mlp mlp);

  template <class Visit>
  void visit_linear(Visit const& visit) {
    attention_.visit_linear(visit);
    mlp_.visit_linear(visit);
  }

  /// Buffers for blocks of this shape.
  SharedActivations share(PassContext const& pass) const;
  /// out [R, width] overwritten, by the next block if the pass has a PendingSum; the returned views
  /// stay in the arena.
  Saved forward(PassContext const& pass, WeightLease const& weights, TensorView out,
                ConstTensorView in) const;
  /// Only the saved activations, bit for bit those of forward(). @p scratch [R, width] is
  /// overwritten.
  Saved recompute(PassContext const& pass, WeightLease const& weights, TensorView scratch,
                  ConstTensorView in) const;
  /// @p stream [R, width] holds the gradient of the output and receives that of the input.
  void backward(PassContext const& pass, BackwardLeases const& leases, TensorView stream,
                ConstTensorView in, Saved const& saved) const;

 private:
  Dropout dropout(PassContext const& pass, DropoutSite site) const;
  TensorView allocate(PassContext const& pass) const {
    return pass.allocate(pass.positions(), options_.width);
  }
  TensorView allocate_stream(PassContext const& pass) const {
    return pass.allocate_stream(pass.positions(), options_.width);
  }
  TensorView normed_rows(PassContext const& pass) const {
    return pass.shared.normed.empty() ? allocate(pass) : pass.shared.normed;
  }
  /// Under light recomputation: attention's input, and the perceptron's with its activations, in
  /// the shared buffers again.
  void restore_attention_in(PassContext const& pass, WeightLease const& weights,
                            ConstTensorView in) const;
  void restore_mlp(PassContext const& pass, WeightLease const& weights, ConstTensorView in,
                   Saved const& saved) const;
  /// The norm before attention, with the sum at the end of the block before if it is pending.
  Norm::Saved enter_attention(PassContext const& pass, WeightLease const& weights,
                              TensorView normed, ConstTensorView in) const;
  /// What the perceptron gets: x1 normalized, or the normalized x of a parallel block.
  void enter_mlp(PassContext const& pass, WeightLease const& weights, TensorView scratch,
                 ConstTensorView in, Saved& saved) const;
  void enter_mlp_in_parallel(PassContext const& pass, WeightLease const& weights,
                             ConstTensorView in, Saved& saved) const;
  void backward_sequential(PassContext const& pass, BackwardLeases const& leases, TensorView stream,
                           ConstTensorView in, Saved const& saved) const;
  void backward_parallel(PassContext const& pass, BackwardLeases const& leases, TensorView stream,
                         ConstTensorView in, Saved const& saved) const;

  Options options_;
  BlockNorms norms_;
  CausalSelfAttention attention_;
  Mlp mlp_;
};

}  // namespace tessera::model::detail
