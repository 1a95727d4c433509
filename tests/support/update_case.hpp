#pragma once
/// An element-wise update on both traversals: a host queue takes tiles, a stream takes packs where
/// all arrays share borders, and else elements.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "fake_device.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/random.hpp"
#include "tessera/kernels/elementwise/gradient_statistics.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::kernels::test {

using Floats = std::vector<float>;

/// A segment of a partition with one set of rates.
struct UpdateSegment {
  void* master = nullptr;
  std::array<void*, 4> states = {};
  void const* gradient = nullptr;
  void* weights_out = nullptr;
  std::int64_t numel = 0;
  double learning_rate = 0.0, weight_decay = 0.0;
};

/// A step of all segments.
struct ElementwiseUpdate {
  std::vector<UpdateSegment> segments = {};
  Dtype gradient_dtype = Dtype::fp32, weights_dtype = Dtype::fp32;
  GradientControl const* control = nullptr;
};

/// From @p least on, so that roots and quotients of states are finite.
inline Floats positive_numbers(std::int64_t n, std::uint64_t stream, float least = 0.1f) {
  Philox const random{11, stream};
  Floats out;
  for (std::int64_t i = 0; i < n; ++i)
    out.push_back(least + random.uniform(static_cast<std::uint64_t>(i)));
  return out;
}

/// Weights, states and 16-bit weights after one step on @p q.
struct UpdateResult {
  Floats values;
  std::vector<std::uint16_t> rounded;
  bool operator==(UpdateResult const&) const = default;
};

template <class Kernel>
UpdateResult run_update(memory::Queue& q, Kernel const& kernel, ElementwiseUpdate step,
                        std::size_t states, std::int64_t n) {
  UpdateResult out{positive_numbers(n, 1), std::vector<std::uint16_t>(static_cast<std::size_t>(n))};
  std::vector<Floats> arrays;
  UpdateSegment s;
  for (std::size_t k = 0; k < states; ++k)
    arrays.push_back(positive_numbers(n, 2 + k, k == 0 ? 2.0f : 0.1f));
  for (std::size_t k = 0; k < states; ++k) s.states[k] = arrays[k].data();
  Floats const gradient = positive_numbers(n + 1, 9);
  s.master = out.values.data();
  s.gradient = gradient.data() + n % 2;  // an odd length shifts the gradient's border
  s.weights_out = out.rounded.data();
  s.numel = n;
  s.learning_rate = 0.05;
  s.weight_decay = 0.1;
  step.weights_dtype = Dtype::bf16;
  step.segments = {s};
  kernel(q, step);
  q.record().wait("the step", std::chrono::seconds(60));
  for (auto const& array : arrays) out.values.insert(out.values.end(), array.begin(), array.end());
  return out;
}

/// Both traversals give the same bits, a skipped step changes nothing, and a segment without its
/// memory is refused. @param kept arrays that the update leaves as they are; 0: the
/// weights, which it does not write then
template <class Kernel>
void expect_update_on_both_sides(Kernel const& kernel, std::size_t states,
                                 std::vector<std::size_t> const& kept = {}) {
  ElementwiseUpdate step;
  tessera::test::FakeDevice device;
  auto const host = memory::make_inline_queue("compute");
  auto const stream = memory::make_stream_queue("compute");
  GradientControl const apply{0.5, 0}, skip{0.5, 1};
  auto const stays = [&](std::size_t array) {
    return std::count(kept.begin(), kept.end(), array) > 0;
  };
  for (std::int64_t const n : {1, 3, 256, 257, 1025, 5000}) {
    step.control = &apply;
    auto const updated = run_update(*host, kernel, step, states, n);
    EXPECT_EQ(run_update(*stream, kernel, step, states, n), updated) << n << " elements";
    if (stays(0))
      EXPECT_EQ(updated.rounded[0], 0);
    else
      EXPECT_EQ(static_cast<float>(bfloat16(updated.values[0])),
                static_cast<float>(std::bit_cast<bfloat16>(updated.rounded[0])));
    step.control = &skip;
    auto const skipped = run_update(*host, kernel, step, states, n);
    EXPECT_EQ(run_update(*stream, kernel, step, states, n), skipped);
    EXPECT_EQ(skipped.rounded[0], 0);
    for (std::size_t i = 0; i < updated.values.size(); ++i) {
      ASSERT_EQ(updated.values[i] == skipped.values[i], stays(i / static_cast<std::size_t>(n)))
          << i;
    }
  }
  float weight = 1.0f;
  UpdateSegment s;
  s.master = &weight;
  s.gradient = &weight;
  s.numel = 1;
  step.segments = {s};
  EXPECT_THROW(kernel(*host, step), InternalError);
}

}  // namespace tessera::kernels::test
