#pragma once
/// Hashes of the bits of tensors, for comparing what two ranks have computed.

#include <cstddef>
#include <cstdint>

#include "tessera/kernels/elementwise/elementwise.hpp"

namespace tessera::kernels {

/// Numbers of a hash: each is a sum over a part of the elements.
inline constexpr std::size_t hash_parts = 128;

/// hash[p] += the sum of a mixed value of each element of part p of @p in, modulo 2^64. A mixed
/// value depends on the bits of the element and on its place, which is counted from @p first: a
/// flipped bit changes the hash, and so do two exchanged elements. The same for any number of
/// threads and on every kind of queue.
/// Shapes   hash [hash_parts] in memory of the queue's space;  in any, 1, 2 or 4 bytes per element.
/// Bytes moved: those of @p in.
void add_hash(Queue& q, std::uint64_t* hash, ConstTensorView in, std::uint64_t first);

/// differences[p] |= a[p] ^ b[p] for each part p: what remains zero belongs to equal hashes.
/// Shapes   all [hash_parts] in memory of the queue's space.
void add_differences(Queue& q, std::uint64_t* differences, std::uint64_t const* a,
                     std::uint64_t const* b);

/// Bijection of 64-bit numbers in which every bit of the input changes half of the bits of the
/// output: the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

/// One number from @p count numbers, which depends on their order.
constexpr std::uint64_t combined_hash(std::uint64_t const* values, std::size_t count) {
  std::uint64_t out = count;
  for (std::size_t i = 0; i < count; ++i) out = mix_bits(out * 0x9E3779B97F4A7C15ull + values[i]);
  return out;
}

}  // namespace tessera::kernels
