#include "layers/lm_head.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <numeric>

#include "fake_device.hpp"
#include "resident_params.hpp"
#include "tessera/core/random.hpp"
#include "tessera/kernels/loss/cross_entropy.hpp"

namespace tessera::model::detail {
namespace {

using Chunks = LmHead::Chunks;
using memory::MemorySpace;

TEST(LmHeadChunks, OfGpt2) {
  EXPECT_EQ(Chunks::of(8192, 50257, Dtype::bf16, MemorySpace::host), (Chunks{631, 50304}));
  EXPECT_EQ(Chunks::of(8192, 50257, Dtype::fp32, MemorySpace::host), (Chunks{328, 50257}));
  EXPECT_EQ(Chunks::of(8192, 50257, Dtype::bf16, MemorySpace::device), (Chunks{8192, 50304}));
  EXPECT_EQ(Chunks::of(32768, 50257, Dtype::bf16, MemorySpace::device), (Chunks{8192, 50304}));
  EXPECT_EQ(Chunks::of(8192, 50257, Dtype::fp32, MemorySpace::device), (Chunks{2048, 50304}));
  EXPECT_EQ((Chunks{8192, 50304}.with_fp32_logits()), (Chunks{2048, 50304}));
}

TEST(LmHeadChunks, StayWithinTheirBytesAndCoverAllRows) {
  constexpr std::int64_t mib = std::int64_t{1} << 20;
  for (std::int64_t rows : {0, 1, 2, 333, 2669, 10672, 10673, 100000}) {
    for (std::int64_t vocabulary : {1, 131, 50257, 300000000}) {
      for (Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
        for (MemorySpace space : {MemorySpace::host, MemorySpace::device}) {
          auto const c = Chunks::of(rows, vocabulary, dtype, space), own = c.with_fp32_logits();
          SCOPED_TRACE(::testing::Message() << rows << " x " << vocabulary << ": " << c.rows << ", "
                                            << own.rows << ", " << c.row);
          std::int64_t const element = dtype == Dtype::fp32 ? 4 : 2,
                             most = space != MemorySpace::device ? 64 * mib
                                    : element == 4               ? 512 * mib
                                                                 : 1024 * mib;
          EXPECT_GE(c.row, vocabulary);
          EXPECT_LE(c.rows, rows);
          EXPECT_EQ(c.rows > 0, rows > 0);
          EXPECT_TRUE(c.rows <= 1 || c.rows * c.row * element <= most);
          EXPECT_TRUE(c.rows == rows || (c.rows + 1) * c.row * element > most / 2) << "no smaller";
          EXPECT_EQ(own.row, c.row);
          EXPECT_EQ(own.rows > 0, rows > 0);
          EXPECT_TRUE(own.rows <= 1 || own.rows * 6 < c.rows * 2) << "fp32 next to 16 bits";
        }
      }
    }
  }
}

/// One training pass of a head on a stream, in chunks of at most this many bytes.
struct Trained {
  std::vector<float> losses, dhidden, projection, gain, offset, bias;
  std::size_t peak = 0;  ///< peak of the head's memory
};
/// Cross-entropy as a loss of the caller's own.
class OwnCrossEntropy final : public LogitLoss {
 public:
  void compute(Queue& compute, LogitChunk const& chunk) override {
    EXPECT_EQ(chunk.logits.dtype(), Dtype::fp32);
    EXPECT_EQ(chunk.first_position, next_position);
    next_position += chunk.losses.numel();
    kernels::cross_entropy(compute,
                           {.gradient_scale = chunk.gradient_scale, .vocabulary = chunk.vocabulary},
                           chunk.losses, chunk.dlogits, chunk.logits, chunk.targets);
  }
  std::int64_t next_position = 0;
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
Trained train(Dtype dtype, std::int64_t most, bool accumulate, LogitLoss* loss = nullptr,
              std::vector<float> const& factors = {}) {
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
  std::int64_t const sequences = factors.empty() ? 1 : std::ssize(factors);
  PassContext const pass{.compute = *queue,
                         .arena = arena,
                         .dtype = dtype,
                         .batch = sequences,
                         .sequence = rows / sequences};
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
      head.train(
          pass, {weights, gradients}, projection, 1.0f / rows, {losses, dhidden},
          {hidden, targets, loss,
           factors.empty() ? std::function<std::vector<float>()>() : [&] { return factors; }});
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
          params.gradient_values(0, 3),
          arena.peak()};
}

TEST(LmHeadChunks, OfOneRowSomeRowsAndAllGiveTheSameLossesAndGradients) {
  test::FakeDevice device;
  constexpr std::int64_t row = 192;
  for (Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
    for (bool accumulate : {false, true}) {
      SCOPED_TRACE(name_of(dtype));
      Trained const whole = train(dtype, 1 << 20, accumulate);
      EXPECT_NEAR(std::accumulate(whole.bias.begin(), whole.bias.end(), 0.0), 0.0,
                  dtype == Dtype::fp32 ? 1e-5 : 2e-2)
          << "probabilities sum to the one of the target";
      for (std::int64_t const most : {4 * row * 7, 2 * row * 20, 2 * row}) {
        Trained const parts = train(dtype, most, accumulate);
        EXPECT_LT(parts.peak, whole.peak);
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

TEST(LmHeadChunks, FactorsOfSequencesMultiplyTheirGradientsAndNotTheLosses) {
  test::FakeDevice device;
  std::vector<float> const factors{2.0f, -0.5f, 0.0f, 1.0f, -3.0f};
  for (Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
    SCOPED_TRACE(name_of(dtype));
    Trained const plain = train(dtype, 1 << 20, false);
    auto want = plain.dhidden;
    for (std::size_t i = 0; i < want.size(); ++i) want[i] *= factors[i / (want.size() / 5)];
    for (std::int64_t const most : {1 << 20, 4 * 192 * 7}) {
      Trained const weighed = train(dtype, most, false, nullptr, factors);
      EXPECT_LT(relative(weighed.losses, plain.losses), 2e-6);
      EXPECT_LT(relative(weighed.dhidden, want), dtype == Dtype::fp32 ? 1e-5 : 2e-2);
    }
  }
}

TEST(LmHeadChunks, ALossOfTheCallersOwnGetsFp32LogitsAndNeedsNoMoreMemory) {
  test::FakeDevice device;
  for (Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
    SCOPED_TRACE(name_of(dtype));
    for (std::int64_t const most : {1 << 20, 2 * 192 * 20}) {
      OwnCrossEntropy loss;
      Trained const builtin = train(dtype, most, false), own = train(dtype, most, false, &loss);
      EXPECT_EQ(loss.next_position, 50);
      EXPECT_LE(own.peak, builtin.peak);
      if (dtype == Dtype::fp32) {
        EXPECT_EQ(own.losses, builtin.losses);
        EXPECT_EQ(own.projection, builtin.projection);
        continue;
      }
      double const unit = dtype == Dtype::bf16 ? 0x1.0p-8 : 0x1.0p-11;
      EXPECT_EQ(own.losses != builtin.losses, dtype == Dtype::bf16) << "bf16 logits are rounded";
      EXPECT_LT(relative(own.losses, builtin.losses), unit);
      EXPECT_LT(relative(own.dhidden, builtin.dhidden), 6 * unit);
      EXPECT_LT(relative(own.projection, builtin.projection), 6 * unit);
    }
  }
}

}  // namespace
}  // namespace tessera::model::detail
