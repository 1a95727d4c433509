#pragma once
/// The segments of a rank's partition that an element-wise update gets, and states in 8 bits.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/kernels/elementwise/gradient_statistics.hpp"
#include "tessera/memory/queue.hpp"

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
  /// In memory of the queue's space (memory::memory_space_of), read when the kernels run; it stays
  /// there until they have run. null: gradient_factor is 1, and the step is not skipped.
  GradientControl const* control = nullptr;
};

// States in 8 bits, as bitsandbytes keeps them: dynamic quantization of chunks of 256 elements.  A
// chunk has one fp32 number, its largest magnitude (absmax), and one code of 8 bits per element. A
// code is an index into a map of 256 numbers from -0.993 or 0 to 1; the element is map[code] *
// absmax. Dettmers et al., "8-bit Optimizers via Block-wise Quantization", ICLR 2022.

/// Elements that share an absmax. A chunk does not reach over the end of a parameter.
inline constexpr std::int64_t quantization_chunk = 256;

/// bitsandbytes' create_dynamic_map(signed). The signed map has no -1.
enum class DynamicMap { signed_values, unsigned_values };

/// The numbers of the map, ascending, bit by bit those of bitsandbytes.
std::span<float const, 256> numbers_of(DynamicMap map);

/// Codes of one state with an absmax for each chunk of them.
struct QuantizedValues {
  std::uint8_t* codes = nullptr;
  float* absmax = nullptr;
};

/// On the host, with memory of the host.
void dequantize(QuantizedValues from, DynamicMap map, std::span<float> out);
/// The nearest codes for the absmax that @p out has; of dequantized numbers those that they came
/// from, or others with the same values.
void quantize(std::span<float const> values, DynamicMap map, QuantizedValues out);

}  // namespace tessera::kernels
