#pragma once
/// The order of an epoch's samples for random sampling.

#include <cstdint>
#include <vector>

namespace tessera::data::detail {

/// torch.randperm(samples) with a generator seeded by @p seed: Fisher-Yates from the front with the
/// outputs of mt19937, modulo the samples that are left. Hugging Face's Trainer seeds it with
/// data_seed + epoch (accelerate's SeedableRandomSampler).
/// Source: PyTorch 2, ATen/native/TensorFactories.cpp, randperm on the CPU.
/// @param samples below 2^32
std::vector<std::uint32_t> torch_randperm(std::int64_t samples, std::uint64_t seed);

/// What LengthGroupedSampler of transformers gives for samples of equal length: sorting by length
/// and moving the longest one to the front change nothing, and torch.randperm(samples) takes its
/// numbers from torch's global generator. Trainer seeds that with `seed`; each epoch, the data
/// loader first draws 64 bits from it. A model with dropout draws from it too, and then
/// transformers reads another order from the second epoch on.
std::vector<std::uint32_t> torch_global_randperm(std::int64_t samples, std::uint64_t seed,
                                                 std::int64_t epoch);

/// Fisher-Yates from the back (Knuth, TAOCP 2, 3.4.2 P) with 64 bits of Philox per exchange:
/// position in a stream of (seed, epoch), so that no state has to be kept.
/// @param samples below 2^32
std::vector<std::uint32_t> philox_shuffle(std::int64_t samples, std::uint64_t seed,
                                          std::int64_t epoch);

}  // namespace tessera::data::detail
