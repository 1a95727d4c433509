#pragma once
/// What the updates of all element-wise optimizers get: the segments of a rank's partition.

#include <array>
#include <vector>

#include "tessera/kernels/elementwise/step_decision.hpp"

namespace tessera::kernels {

/// A run of the partition with one set of rates.
struct UpdateSegment {
  static constexpr std::size_t max_states = 4;
  void* master = nullptr;                     ///< weights of master_dtype, updated
  std::array<void*, max_states> states = {};  ///< updated; the order is the optimizer's
  void const* gradient = nullptr;
  void* weights_out = nullptr;  ///< 16-bit weights written from the updated master; null when the
                                ///< master is the weight
  std::int64_t numel = 0;
  double learning_rate = 0.0;
  double weight_decay = 0.0;
};

/// One step for all segments. The gradient of an element is gradient * gradient_factor: unscale and
/// clip in one. An element's result depends on its own values only, not on where it lies in a
/// segment. The step may be destroyed after the call.
struct ElementwiseUpdate {
  std::vector<UpdateSegment> segments;
  Dtype gradient_dtype = Dtype::fp32;
  Dtype weights_dtype = Dtype::fp32;  ///< of weights_out
  /// Values of 16 bits become fp32, are updated and are rounded to nearest.
  Dtype master_dtype = Dtype::fp32, state_dtype = Dtype::fp32;
  double gradient_factor = 1.0;
  /// In memory of the queue's space (memory::memory_space_of), read when the kernels run and then
  /// used instead of gradient_factor, with the same bits; it stays there until they have run.
  GradientControl const* control = nullptr;
};

}  // namespace tessera::kernels
