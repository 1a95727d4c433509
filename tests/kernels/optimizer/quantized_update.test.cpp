/// Maps and codes against bitsandbytes and exhaustive search. The updates: tests/optim.
#include "tessera/kernels/optimizer/elementwise_update.hpp"

#include <chrono>
#include <cmath>
#include <future>
#include <limits>

#include "fake_device.hpp"
#include "optimizer/quantized_chunk.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/memory/planning.hpp"
#include "tessera/memory/stream_queue.hpp"
#include "update_case.hpp"

namespace tessera::kernels::test {
namespace {

constexpr DynamicMap maps[] = {DynamicMap::signed_values, DynamicMap::unsigned_values};

TEST(QuantizedUpdate, MapsAreThoseOfBitsandbytes) {
  auto const oracle =
      ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/optimizers_8bit.json");
  for (auto const map : maps) {
    auto const& stored =
        oracle.at("maps").at(map == DynamicMap::signed_values ? "signed" : "unsigned").as_array();
    for (std::size_t i = 0; i < 256; ++i)
      EXPECT_EQ(numbers_of(map)[i], static_cast<float>(stored[i].as_double())) << i;
  }
}

/// Numbers of all magnitudes, and those around every border between two codes, get the nearest
/// code.
TEST(QuantizedUpdate, CodesAreTheNearest) {
  for (auto const map : maps) {
    auto const numbers = numbers_of(map);
    Floats values;
    for (std::size_t i = 0; i + 1 < 256; ++i) {
      float const middle = (numbers[i] + numbers[i + 1]) / 2.0f;
      values.insert(values.end(), {numbers[i], std::nextafter(middle, -2.0f), middle,
                                   std::nextafter(middle, 2.0f)});
    }
    for (int i = 0; i < 4096; ++i)
      values.push_back(std::ldexp(1.0f + static_cast<float>(i) / 4096.0f, -1 - i % 40));
    values.insert(values.end(), {1.0f, 0.0f, 1e-45f});
    if (map == DynamicMap::signed_values) values.push_back(-1.0f);
    for (float const value : values) {
      float absmax = 1.0f;
      std::uint8_t code = 0;
      quantize({&value, 1}, map, {&code, &absmax});
      double best = 2.0;
      for (float const number : numbers)
        best = std::min(best, std::abs(static_cast<double>(number) - value));
      EXPECT_EQ(std::abs(static_cast<double>(numbers[code]) - value), best) << value;
    }
  }
}

/// What a checkpoint has of codes gives the same values again, for any absmax.
TEST(QuantizedUpdate, ValuesOfCodesKeepTheirValues) {
  for (auto const map : maps)
    for (float const largest : {1.0f, 3.7e-5f, 2.9e20f, 1.3e-38f, 7e-45f, 0.0f}) {
      std::vector<std::uint8_t> codes(256), again(256);
      for (std::size_t i = 0; i < 256; ++i) codes[i] = static_cast<std::uint8_t>(i);
      float absmax = largest;
      Floats values(256), later(256);
      dequantize({codes.data(), &absmax}, map, values);
      quantize(values, map, {again.data(), &absmax});
      dequantize({again.data(), &absmax}, map, later);
      EXPECT_EQ(values, later) << largest;
      if (largest > 1e-30f) {
        EXPECT_EQ(codes, again);
      }
    }
}

struct Operands {
  explicit Operands(std::int64_t n)
      : weights(positive_numbers(n, 1)),
        gradients(positive_numbers(n, 2)),
        rounded(weights.size()),
        codes{std::vector<std::uint8_t>(weights.size()), std::vector<std::uint8_t>(weights.size())},
        absmax{Floats((weights.size() + 255) / 256), Floats((weights.size() + 255) / 256)} {}
  QuantizedSegment segment() {
    QuantizedSegment s;
    s.master = weights.data();
    s.gradient = gradients.data();
    s.weights_out = rounded.data();
    s.numel = static_cast<std::int64_t>(weights.size());
    s.learning_rate = 0.1;
    for (std::size_t k : {0, 1}) s.quantized[k] = {codes[k].data(), absmax[k].data()};
    return s;
  }
  bool operator==(Operands const&) const = default;

  Floats weights, gradients;
  std::vector<std::uint16_t> rounded;
  std::vector<std::uint8_t> codes[2];
  Floats absmax[2];
};

AdamWStep step_of(GradientControl const& control) {
  AdamWStep step;
  step.weights_dtype = Dtype::bf16;
  step.bias_correction1 = 0.1;
  step.bias_correction2 = 0.001;
  step.control = &control;
  return step;
}

/// More segments than a launch takes, and chunks that are not full, as one by one.
TEST(QuantizedUpdate, OfManySegmentsIsThatOfEach) {
  auto const queue = memory::make_inline_queue("compute");
  GradientControl const control{0.5, 0};
  std::vector<Operands> together, single;
  for (int i = 0; i < 60; ++i) together.emplace_back(1 + 300 * (i % 20));
  single = together;
  std::vector<QuantizedSegment> all;
  for (auto& x : together) all.push_back(x.segment());
  for (int t = 0; t < 3; ++t) {
    adamw_8bit(*queue, step_of(control), all);
    for (auto& x : single) adamw_8bit(*queue, step_of(control), {x.segment()});
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
  adamw_8bit(*memory::make_inline_queue("compute"), step_of(control), {expected.segment()});
  {
    memory::BufferPlanning const planning;
    memory::PlanningQueue planned(memory::MemorySpace::device);
    Operands untouched = x;
    adamw_8bit(planned, step_of(control), {untouched.segment()});
    EXPECT_EQ(untouched, x);
  }
  std::promise<void> gate;
  auto const behind = memory::make_stream_queue("behind"),
             other = memory::make_stream_queue("other");
  behind->submit([opened = gate.get_future().share()] { opened.wait(); });
  adamw_8bit(*behind, step_of(control), {first.segment()});
  adamw_8bit(*other, step_of(control), {x.segment()});
  other->record().wait("update", std::chrono::seconds(30));
  EXPECT_EQ(x, expected);
  EXPECT_TRUE(device.on_device(detail::table_for(*other, DynamicMap::signed_values)));
  gate.set_value();
  behind->record().wait("update", std::chrono::seconds(30));
  EXPECT_EQ(first, expected);
}

TEST(QuantizedUpdate, ASkippedStepChangesNothing) {
  auto const queue = memory::make_inline_queue("compute");
  GradientControl const control{0.5, 1};
  Operands x(1000);
  auto const before = x;
  adamw_8bit(*queue, step_of(control), {x.segment()});
  EXPECT_EQ(x, before);
}

TEST(QuantizedUpdate, StatesThatAreNotFiniteAreSeen) {
  auto const queue = memory::make_inline_queue("compute");
  GradientControl const control{1.0, 0};
  Operands x(600);
  x.gradients[300] = std::numeric_limits<float>::quiet_NaN();
  adamw_8bit(*queue, step_of(control), {x.segment()});
  EXPECT_TRUE(std::isfinite(x.absmax[0][0]));
  EXPECT_TRUE(std::isnan(x.absmax[0][1]));
}

TEST(QuantizedUpdate, RefusesSegmentsWithoutCodes) {
  auto const queue = memory::make_inline_queue("compute");
  GradientControl const control{1.0, 0};
  Operands x(10);
  auto s = x.segment();
  s.quantized[1].codes = nullptr;
  EXPECT_THROW(adamw_8bit(*queue, step_of(control), {s}), InternalError);
  LionStep lion;
  lion.weights_dtype = Dtype::bf16;
  EXPECT_NO_THROW(lion_8bit(*queue, lion, {s})) << "one state";
}

}  // namespace
}  // namespace tessera::kernels::test
