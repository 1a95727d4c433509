/// Updates with states in 8 bits; their numbers are compared in quantized.test.cpp.
#include "optimizers/table.hpp"

#include <chrono>
#include <cmath>
#include <future>
#include <limits>

#include "fake_device.hpp"
#include "optimizer/quantized_chunk.hpp"
#include "tessera/memory/planning.hpp"
#include "tessera/memory/stream_queue.hpp"
#include "trajectory.hpp"
#include "update_by.hpp"

namespace tessera::optim::test {
namespace {

using kernels::GradientControl;
using kernels::test::positive_numbers;

struct Operands {
  explicit Operands(std::int64_t n)
      : weights(positive_numbers(n, 1)),
        gradients(positive_numbers(n, 2)),
        rounded(weights.size()),
        codes{std::vector<std::uint8_t>(weights.size()), std::vector<std::uint8_t>(weights.size())},
        absmax{Floats((weights.size() + 255) / 256), Floats((weights.size() + 255) / 256)} {}
  Segment segment() {
    auto const numel = static_cast<std::int64_t>(weights.size());
    Segment s;
    s.master = weights.data();
    s.states = {codes[0].data(), codes[1].data(), nullptr, nullptr};
    s.gradient = gradients.data();
    s.weights_out = rounded.data();
    s.numel = numel;
    s.parameters = {{{numel}, numel, 0, 0, numel}};
    s.parameter_states = {{nullptr, nullptr, absmax[0].data(), absmax[1].data()}};
    return s;
  }
  bool operator==(Operands const&) const = default;

  Floats weights, gradients;
  std::vector<std::uint16_t> rounded;
  std::vector<std::uint8_t> codes[2];
  Floats absmax[2];
};

void adamw_8bit(memory::Queue& q, GradientControl const& control, std::vector<Segment> segments) {
  make_optimizer(make_spec("AdamW8bit"))
      ->update(q, {std::move(segments), Dtype::fp32, Dtype::bf16}, {1, 0.1, &control});
}

/// More segments than a launch takes, and chunks that are not full, as one by one.
TEST(QuantizedUpdate, OfManySegmentsIsThatOfEach) {
  auto const queue = memory::make_inline_queue("compute");
  GradientControl const control{0.5, 0};
  std::vector<Operands> together, single;
  for (int i = 0; i < 60; ++i) together.emplace_back(1 + 300 * (i % 20));
  single = together;
  std::vector<Segment> all;
  for (auto& x : together) all.push_back(x.segment());
  for (int t = 0; t < 3; ++t) {
    adamw_8bit(*queue, control, all);
    for (auto& x : single) adamw_8bit(*queue, control, {x.segment()});
  }
  EXPECT_EQ(together, single);
  EXPECT_NE(together[5].absmax[1][1], 0.0f);
  EXPECT_EQ(static_cast<float>(bfloat16(together[5].weights[700])),
            static_cast<float>(std::bit_cast<bfloat16>(together[5].rounded[700])));
}

/// Before its first call on a device a process may have planned passes, and the first stream with
/// an update may be behind in its work.
TEST(QuantizedUpdate, AnyStreamReadsCompleteTables) {
  auto& device = tessera::test::FakeDevice::of_process();
  GradientControl const control{0.5, 0};
  Operands x(3000);
  Operands expected = x, first = x;
  adamw_8bit(*memory::make_inline_queue("compute"), control, {expected.segment()});
  {
    memory::BufferPlanning const planning;
    memory::PlanningQueue planned(memory::MemorySpace::device);
    Operands untouched = x;
    adamw_8bit(planned, control, {untouched.segment()});
    EXPECT_EQ(untouched, x);
  }
  std::promise<void> gate;
  auto const behind = memory::make_stream_queue("behind"),
             other = memory::make_stream_queue("other");
  behind->submit([opened = gate.get_future().share()] { opened.wait(); });
  adamw_8bit(*behind, control, {first.segment()});
  adamw_8bit(*other, control, {x.segment()});
  other->record().wait("update", std::chrono::seconds(30));
  EXPECT_EQ(x, expected);
  EXPECT_TRUE(
      device.on_device(kernels::detail::table_for(*other, kernels::DynamicMap::signed_values)));
  gate.set_value();
  behind->record().wait("update", std::chrono::seconds(30));
  EXPECT_EQ(first, expected);
}

TEST(QuantizedUpdate, ASkippedStepChangesNothing) {
  auto const queue = memory::make_inline_queue("compute");
  GradientControl const control{0.5, 1};
  Operands x(1000);
  auto const before = x;
  adamw_8bit(*queue, control, {x.segment()});
  EXPECT_EQ(x, before);
}

TEST(QuantizedUpdate, StatesThatAreNotFiniteAreSeen) {
  auto const queue = memory::make_inline_queue("compute");
  GradientControl const control{1.0, 0};
  Operands x(600);
  x.gradients[300] = std::numeric_limits<float>::quiet_NaN();
  adamw_8bit(*queue, control, {x.segment()});
  EXPECT_TRUE(std::isfinite(x.absmax[0][0]));
  EXPECT_TRUE(std::isnan(x.absmax[0][1]));
}

TEST(QuantizedUpdate, RefusesSegmentsWithoutCodes) {
  auto const queue = memory::make_inline_queue("compute");
  GradientControl const control{1.0, 0};
  Operands x(10);
  auto s = x.segment();
  s.states[1] = nullptr;
  EXPECT_THROW(adamw_8bit(*queue, control, {s}), InternalError);
}

}  // namespace
}  // namespace tessera::optim::test
