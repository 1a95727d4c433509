#pragma once
/// Random noise on activations.

#include "tessera/kernels/elementwise/elementwise.hpp"

namespace tessera::kernels {

/// Uniform random numbers in [-magnitude, magnitude).
struct Noise {
  float magnitude = 0.0f;
  Dropout numbers;  ///< those of this dropout, whatever its p
};

/// data [n] T += noise.
void add_noise(Queue& q, TensorView data, Noise const& noise);

}  // namespace tessera::kernels
