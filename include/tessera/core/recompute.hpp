#pragma once
/// Which activations the backward pass computes again instead of keeping them.

namespace tessera {

/// Which activations the backward pass computes again.
enum class Recompute {
  none,   ///< all activations are kept
  light,  ///< outputs of norms and of activation functions are computed again
  block   ///< all but a block's input: activation checkpointing
};

constexpr char const* name_of(Recompute recompute) {
  return recompute == Recompute::block ? "block" : recompute == Recompute::light ? "light" : "none";
}

}  // namespace tessera
