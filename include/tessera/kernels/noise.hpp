#pragma once
/// Random noise on activations.

#include "tessera/kernels/elementwise.hpp"

namespace tessera::kernels {

/// Uniform random numbers in [-magnitude, magnitude), numbered as those of a Dropout.
struct Noise {
  float magnitude = 0.0f;
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
  std::uint64_t first_element = 0;
};

/// data [n] T += noise.
void add_noise(Queue& q, TensorView data, Noise const& noise);

}  // namespace tessera::kernels
