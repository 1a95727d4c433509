#pragma once
/// What is between the embedding and the head of a decoder: layers on a residual stream, each with
/// a unit of its own.

#include <memory>
#include <utility>

#include "decoder/block.hpp"

namespace tessera::model::detail {

class DecoderLayer {
 public:
  /// What backward needs besides the layer's input; its views are in the arena of the pass.
  struct Saved {
    virtual ~Saved() = default;
  };

  virtual ~DecoderLayer() = default;
  /// Whether forward() takes and leaves a PendingSum.
  virtual bool sums_are_pending() const { return false; }
  /// What all layers of a pass with Recompute::light share.
  virtual SharedActivations share(PassContext const& pass) const = 0;
  /// out [R, width] overwritten.
  virtual std::unique_ptr<Saved> forward(PassContext const& pass, WeightLease const& weights,
                                         TensorView out, ConstTensorView in) const = 0;
  /// Only what is saved, bit for bit that of forward(). @p scratch [R, width] is overwritten.
  virtual std::unique_ptr<Saved> recompute(PassContext const& pass, WeightLease const& weights,
                                           TensorView scratch, ConstTensorView in) const = 0;
  /// @p stream [R, width] holds the gradient of the output and receives that of the input.
  virtual void backward(PassContext const& pass, BackwardLeases const& leases, TensorView stream,
                        ConstTensorView in, Saved const& saved) const = 0;
};

/// A block of the families.
class BlockLayer final : public DecoderLayer {
 public:
  explicit BlockLayer(Block block) : block_(std::move(block)) {}
  bool sums_are_pending() const override { return true; }

  SharedActivations share(PassContext const& pass) const override { return block_.share(pass); }

  std::unique_ptr<Saved> forward(PassContext const& pass, WeightLease const& weights,
                                 TensorView out, ConstTensorView in) const override {
    return std::make_unique<BlockSaved>(block_.forward(pass, weights, out, in));
  }
  std::unique_ptr<Saved> recompute(PassContext const& pass, WeightLease const& weights,
                                   TensorView scratch, ConstTensorView in) const override {
    return std::make_unique<BlockSaved>(block_.recompute(pass, weights, scratch, in));
  }
  void backward(PassContext const& pass, BackwardLeases const& leases, TensorView stream,
                ConstTensorView in, Saved const& saved) const override {
    block_.backward(pass, leases, stream, in, static_cast<BlockSaved const&>(saved).block);
  }

 private:
  struct BlockSaved final : Saved {
    explicit BlockSaved(Block::Saved of) : block(std::move(of)) {}
    Block::Saved block;
  };

  Block block_;
};

}  // namespace tessera::model::detail
