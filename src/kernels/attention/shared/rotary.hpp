#pragma once
/// Rotary position embeddings of query and key heads.  Su et al., "RoFormer", arXiv 2104.09864, in
/// the form of GPT-NeoX and Llama that pairs element i with element i + rotary_dim / 2.

#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/kernels/launch/heads.hpp"

namespace tessera::kernels {

struct RotaryShape {
  Dtype dtype = Dtype::fp32;
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  int heads = 0;
  int head_dim = 0;
  int rotary_dim = 0;  ///< even, at most head_dim; the other elements are copied
};
/// Cosines and sines of the angles of every position, see rotary_tables.hpp.
struct RotaryTables {
  ConstTensorView cos, sin;  ///< [positions, rotary_dim / 2] fp32
};
/// (b, t) has position first + first_of_row[b] + t, or first + each[b, t].
struct RotaryPositions {
  std::int64_t first = 0;
  ConstTensorView first_of_row{};  ///< [B] int32 in the queue's memory space, or empty: all 0
  ConstTensorView each{};          ///< [B, T] int32 there, or empty; not with first_of_row
};
/// What is rotated, by which angles.
struct Rotation {
  RotaryShape shape;
  RotaryTables tables;
  RotaryPositions positions{};
};
enum class RotaryDirection {
  forward,
  inverse,  ///< by the negative angles: the backward pass
};

/// With c and s of the position, n = rotary_dim / 2 and i < n:
///   out[i] = in[i] c[i] - in[i + n] s[i];  out[i + n] = in[i + n] c[i] + in[i] s[i]
/// inverse: s is replaced by -s. out may be in. 2 bytes read and 2 written per 16-bit element.
void rotate_heads(Queue& q, Rotation const& rotation, HeadsView const& out,
                  ConstHeadsView const& in, RotaryDirection direction);

}  // namespace tessera::kernels
