#include "detail/lm_head.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <numeric>

#include "fake_device.hpp"
#include "resident_params.hpp"
#include "tessera/core/random.hpp"

namespace tessera::model::detail {
namespace {

using Chunks = LmHead::Chunks;
using memory::MemorySpace;

TEST(LmHeadChunks, OfGpt2) {
  EXPECT_EQ(Chunks::of(8192, 50257, Dtype::bf16, MemorySpace::host), (Chunks{328, 328, 50257}));
  EXPECT_EQ(Chunks::of(8192, 50257, Dtype::bf16, MemorySpace::device), (Chunks{2048, 8192, 50304}));
  EXPECT_EQ(Chunks::of(32768, 50257, Dtype::bf16, MemorySpace::device),
            (Chunks{2048, 8192, 50304}));
  EXPECT_EQ(Chunks::of(8192, 50257, Dtype::fp32, MemorySpace::device), (Chunks{2048, 2048, 50304}));
}

TEST(LmHeadChunks, StayWithinTheirBytesAndCoverAllRows) {
  constexpr std::int64_t mib = std::int64_t{1} << 20;
  for (std::int64_t rows : {0, 1, 2, 333, 2669, 10672, 10673, 100000}) {
    for (std::int64_t vocabulary : {1, 131, 50257, 300000000}) {
      for (Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
        for (MemorySpace space : {MemorySpace::host, MemorySpace::device}) {
          auto const c = Chunks::of(rows, vocabulary, dtype, space);
          SCOPED_TRACE(::testing::Message() << rows << " x " << vocabulary << ": " << c.logits
                                            << ", " << c.gradients << ", " << c.row);
          EXPECT_GE(c.row, vocabulary);
          EXPECT_LE(c.logits, c.gradients);
          EXPECT_LE(c.gradients, rows);
          EXPECT_EQ(c.logits > 0, rows > 0);
          EXPECT_TRUE(c.logits <= 1 ||
                      c.logits * c.row * 4 <= (space == MemorySpace::device ? 512 : 64) * mib);
          EXPECT_TRUE(c.gradients == c.logits || c.gradients * c.row * 2 <= 1024 * mib);
          EXPECT_TRUE(c.gradients == c.logits ||
                      (dtype != Dtype::fp32 && space == MemorySpace::device));
        }
      }
    }
  }
}

/// One training pass of a head on a stream, in chunks of at most so many bytes.
struct Trained {
  std::vector<float> losses, dhidden, projection, gain, offset, bias;
};
/// Largest difference over the largest element; infinite where nothing is there.
double relative(std::vector<float> const& got, std::vector<float> const& want) {
  double largest = 0, difference = got.size() == want.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    largest = std::max(largest, static_cast<double>(std::abs(want[i])));
    difference = std::max(difference, static_cast<double>(std::abs(got[i] - want[i])));
  }
  return largest > 0 ? difference / largest : INFINITY;
}
Trained train(Dtype dtype, LmHead::ChunkBytes const& most, bool accumulate) {
  constexpr std::int64_t rows = 50, width = 24, vocabulary = 131;
  UnitSpec unit;
  unit.name = "head";
  Norm const norm(unit, "ln_f", {.width = width});
  LmHead head(norm, {.width = width, .vocabulary = vocabulary, .chunk_bytes = most});
  head.own_projection(unit, "lm_head.weight", 0.02);
  head.own_bias(unit, "lm_head.bias");
  auto const random = [](std::size_t i, std::uint64_t seed) {
    return 2.0f * Philox{seed, 1}.uniform(i) - 1.0f;
  };
  test::ResidentParams params({unit}, dtype, [&](memory::ParameterSpec const& spec, float* out) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(spec.numel()); ++i) out[i] = random(i, 1);
  });
  auto const queue = memory::make_stream_queue("compute");
  Arena arena("activations", memory::Purpose::activations);
  PassContext const pass{
      .compute = *queue, .arena = arena, .dtype = dtype, .batch = 1, .sequence = rows};
  TensorView const hidden = pass.allocate(rows, width), dhidden = pass.allocate(rows, width),
                   losses = pass.allocate_fp32(rows);
  TensorView const targets = arena.allocate(Dtype::int32, {rows}),
                   values = pass.allocate_fp32(rows * width);
  for (std::size_t i = 0; i < static_cast<std::size_t>(rows * width); ++i)
    values.as<float>()[i] = random(i, 2);
  for (std::int64_t i = 0; i < rows; ++i)
    targets.as<std::int32_t>()[i] =
        i % 7 == 3 ? -1 : static_cast<std::int32_t>(i * 29 % vocabulary);
  kernels::cast(*queue, hidden, values.reshape({rows, width}));
  params.begin_pass(memory::Pass::training, {memory::first_unit});
  {
    auto const weights = params.acquire(memory::first_unit, *queue);
    for (int time = 0; time < (accumulate ? 2 : 1); ++time) {
      auto const gradients = params.gradient(memory::first_unit, *queue);
      LmHead::Projection const projection{.weight = weights[*head.projection()],
                                          .gradient = gradients[*head.projection()],
                                          .accumulate = gradients.accumulate(),
                                          .bias = weights[*head.bias()],
                                          .bias_gradient = gradients[*head.bias()]};
      head.train(pass, {weights, gradients}, projection, 1.0f / rows, {losses, dhidden},
                 {hidden, targets});
    }
  }
  kernels::cast(*queue, values.reshape({rows, width}), dhidden);
  queue->record().wait("the head", std::chrono::seconds(60));
  auto const floats = [](TensorView v) {
    return std::vector<float>(v.as<float>(), v.as<float>() + v.numel());
  };
  return {floats(losses),
          floats(values),
          params.gradient_values(0, 2),
          params.gradient_values(0, 0),
          params.gradient_values(0, 1),
          params.gradient_values(0, 3)};
}

TEST(LmHeadChunks, OfOneRowSomeRowsAndAllGiveTheSameLossesAndGradients) {
  test::FakeDevice device;
  constexpr std::int64_t row = 192;
  for (Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
    for (bool accumulate : {false, true}) {
      SCOPED_TRACE(name_of(dtype));
      Trained const whole = train(dtype, {1 << 20, 1 << 20}, accumulate);
      EXPECT_NEAR(std::accumulate(whole.bias.begin(), whole.bias.end(), 0.0), 0.0,
                  dtype == Dtype::fp32 ? 1e-5 : 2e-2)
          << "probabilities sum to the one of the target";
      for (LmHead::ChunkBytes const& most : {LmHead::ChunkBytes{4 * row * 7, 1 << 20},
                                             {4 * row * 7, 2 * row * 20},
                                             {4 * row, 2 * row}}) {
        Trained const parts = train(dtype, most, accumulate);
        EXPECT_LT(relative(parts.projection, whole.projection), dtype == Dtype::fp32   ? 1e-6
                                                                : dtype == Dtype::fp16 ? 4e-3
                                                                                       : 3e-2)
            << "sums of chunks are rounded";
        EXPECT_LT(relative(parts.offset, whole.offset), dtype == Dtype::fp32 ? 1e-5 : 2e-2);
        EXPECT_LT(relative(parts.bias, whole.bias), dtype == Dtype::fp32 ? 1e-5 : 2e-2);
        EXPECT_LT(relative(parts.gain, whole.gain), dtype == Dtype::fp32 ? 1e-5 : 2e-2);
        EXPECT_LT(relative(parts.losses, whole.losses), 2e-6);
        EXPECT_LT(relative(parts.dhidden, whole.dhidden), dtype == Dtype::fp32 ? 1e-5 : 2e-2);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::model::detail
