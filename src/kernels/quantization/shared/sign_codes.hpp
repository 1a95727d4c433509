#pragma once
/// Values as signs and a scale, for communication: 1-bit compression with error feedback.
///
/// The scale of n values x is their root mean square ||x||_2 / sqrt(n); a value becomes scale *
/// sgn(x) with sgn(0) = 1. Signs are bits of 32-bit words, the first element in the lowest bit; 1
/// is a value that is not negative, and bits past the last element are 0. Source: Tang et al.,
/// "1-bit Adam: Communication Efficient Large-Scale Training with Adam's Convergence Speed",
/// ICML'21, section 4.2; Karimireddy et al., "Error Feedback Fixes SignSGD", ICML'19.

#include <cstdint>

#include "tessera/memory/queue.hpp"

namespace tessera::kernels {

using memory::Queue;

/// Elements of a word.
inline constexpr std::int64_t signs_per_word = 32;

/// Parts of equal layout, one per rank, that are `stride` bytes apart.
struct ScaleCopies {
  float* first = nullptr;
  std::int64_t stride = 0, count = 1;
};
/// Each copy = sqrt(sums[0] / numel), 0 without elements.
/// @param sums of the squares, as gradient_statistics() leaves them
void sign_scale(Queue& q, ScaleCopies const& out, double const* sums, std::int64_t numel);

/// words = the signs of values [numel]; values -= *scale * sgn(values), which is the error.
/// Traffic 4 B read + 4 B written per element, + 1 bit.
void encode_signs(Queue& q, std::uint32_t* words, float* values, std::int64_t numel,
                  float const* scale);

/// Signs of the same elements from several ranks: the words and the scale of rank r are r * stride
/// bytes after those of rank 0.
struct SignParts {
  std::uint32_t const* words = nullptr;
  float const* scales = nullptr;
  std::int64_t stride = 0, count = 1;
};
/// values [numel] += the mean over the parts of scale * sign, added in the order of the parts.
void add_mean_of_signs(Queue& q, float* values, std::int64_t numel, SignParts const& parts);

/// out [numel] = *scale * sign.
void decode_signs(Queue& q, float* out, std::int64_t numel, std::uint32_t const* words,
                  float const* scale);

}  // namespace tessera::kernels
