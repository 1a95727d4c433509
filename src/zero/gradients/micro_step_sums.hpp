#pragma once
/// Where the gradients of a micro-step go, and which partial sums are added then. Plain sums have
/// one place. As a binary tree over the micro-steps (a binary counter) they have several, each with
/// the sum of 2^k micro-steps, so that the same tree over ranks and micro-steps gives the same bits
/// for any division of it.

#include <algorithm>
#include <bit>

#include "gradients/gradient_flow.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"

namespace tessera::zero::detail {

/// Negative zeros: the gradients of no sample, which change no bit of a sum.
inline void clear_to_identity(memory::Queue& compute, memory::TensorView gradients) {
  kernels::fill(compute, gradients, -0.0f);
}

class MicroStepSums {
 public:
  explicit MicroStepSums(EngineConfig const& config)
      : is_tree_(config.sum_order == SumOrder::tree), copies_(copies_of(config)) {}

  /// Copies of the kept gradients: log2 of the micro-steps as a tree, at least one.
  static int copies_of(EngineConfig const& config) {
    if (config.sum_order != SumOrder::tree) return 1;
    return std::max(
        1, static_cast<int>(std::bit_width(static_cast<unsigned>(config.accumulation_steps))) - 1);
  }
  int copies() const { return copies_; }
  bool is_tree() const { return is_tree_; }

  void begin(GradientFlow::MicroStep const& micro) {
    auto const index = static_cast<unsigned>(micro.index);
    depth_ = std::popcount(index + 1);
    adds_ = is_tree_ ? index % 2 == 1 : !micro.first;
    copy_index_ = !is_tree_ ? 0 : std::popcount(index) - (adds_ ? 1 : 0);
    end_ = !is_tree_ || micro.last ? 0 : depth_ - 1;
  }
  /// Where the micro-step's gradients are written, or added to those that are there.
  int copy_index() const { return copy_index_; }
  bool adds() const { return adds_; }
  /// Adds the sums of equal numbers of micro-steps, and all of them after the last one.
  /// @param at gives the view of a copy by its index
  template <class At>
  void merge(memory::Queue& compute, At const& at) const {
    for (int k = copy_index_; k > end_; --k) kernels::add(compute, at(k - 1), at(k));
  }
  /// Merges where adds() is true and the micro-step's gradients are still in @p own, which is
  /// overwritten: tile by tile the sums stay in the cache, and only the last one goes to memory.
  template <class At>
  void merge(memory::Queue& compute, memory::TensorView own, At const& at) const {
    if (!merges() || own.dtype() != Dtype::fp32) {
      kernels::add(compute, at(copy_index_), own);
      return merge(compute, at);
    }
    for (std::int64_t first = 0; first < own.numel(); first += tile) {
      std::int64_t const n = std::min(tile, own.numel() - first);
      auto const sum = own.rows(first, n);
      for (int k = copy_index_; k > end_; --k) kernels::add(compute, sum, at(k).rows(first, n));
      kernels::add(compute, at(end_).rows(first, n), sum);
    }
  }
  bool merges() const { return copy_index_ > end_; }

 private:
  static constexpr std::int64_t tile = std::int64_t{1} << 15;  ///< elements

  bool is_tree_;
  int copies_;
  int depth_ = 1, copy_index_ = 0, end_ = 0;
  bool adds_ = false;
};

}  // namespace tessera::zero::detail
