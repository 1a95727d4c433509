/// Weights that are gathered as codes (ZeRO++ qwZ): what every rank sees, and the bytes.
#include "weights/quantized_gather.hpp"

#include "engine_fixture.hpp"
#include "engine_settings.hpp"

namespace tessera::test {
namespace {

using namespace tied_model;

zero::EngineConfig quantized(int bits, Dtype dtype = Dtype::fp32) {
  auto config = config_of(3, dtype);
  weights_of(config).quantized_weight_bits = bits;
  return config;
}

/// Initial weights are between -1 and 1, so half a code is at most 1/254 or 1/14.
TEST(QuantizedGather, EveryRankSeesTheSameNearestCodes) {
  for (int const bits : {8, 4})
    for (Dtype const dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
      Training codes(quantized(bits, dtype)), values(config_of(3, dtype));
      auto const a = codes.weights(), b = values.weights();
      ASSERT_EQ(a.size(), b.size());
      double worst = 0.0;
      for (std::size_t i = 0; i < a.size(); ++i)
        worst = std::max(worst, std::abs(static_cast<double>(a[i]) - b[i]));
      EXPECT_LE(worst,
                (bits == 8 ? 1.008 / 254 : 1.008 / 14) + (dtype == Dtype::fp32 ? 1e-6 : 4e-3));
      if (codes.ranks() > 1) {
        EXPECT_GT(worst, 0.0);
      }
      EXPECT_TRUE(same_on_all_ranks(*codes.recording, a));
    }
}

/// The master weights keep all bits, so that training follows the uncompressed one.
TEST(QuantizedGather, TrainsNearTheUncompressedWeights) {
  for (std::int64_t const prefetch :
       {std::int64_t{0}, std::int64_t{700}, std::int64_t{50'000'000}}) {
    auto config = quantized(8);
    set_prefetch(config, prefetch);
    config.accumulation_steps = 2;
    config.allgather_bucket_size = 300;
    Training training(config);
    SerialTraining serial(config, training.model, training.ranks());
    for (int k = 1; k <= 5; ++k) {
      double const norm = serial.step(1e-2);
      EXPECT_NEAR(training.step(1e-2).grad_norm, norm, 5e-3 * norm);
      (void)training.weights();
    }
    // Adam's step is the rate whatever the gradient, but for gradients near zero
    EXPECT_LE(state_difference(training, 0, serial), 2e-2);
  }
}

/// A byte per weight and a scale of two bytes per 64, with secondary shards between groups only
/// once.
TEST(QuantizedGather, SendsCodesAndScales) {
  auto config = quantized(8, Dtype::bf16);
  set_prefetch(config, 0);
  Training training(config, QuadraticModel(blocks, true));
  auto const n = static_cast<std::int64_t>(training.ranks());
  (void)training.step(1e-2);
  training.recording->clear();
  (void)training.step(1e-2);
  std::size_t sent = 0;
  for (auto const& r : training.recording->records()) {
    if (r.operation != "all_gather") continue;
    EXPECT_EQ(r.dtype, Dtype::uint8);
    sent += r.bytes_sent;
  }
  auto const of = [&](std::int64_t numel) {
    return static_cast<std::size_t>((n - 1) * kernels::code_bytes({.bits = 8}, numel / n));
  };
  EXPECT_EQ(sent, 3 * of(embedding) + 2 * blocks * of(block) + of(head));
  std::int64_t const shard = embedding / n;
  EXPECT_LE(of(embedding), static_cast<std::size_t>((n - 1) * (shard + shard / 32 + 18)));
}

TEST(QuantizedGather, ComesBeforeSecondaryShards) {
  auto config = quantized(8, Dtype::bf16);
  weights_of(config).secondary_group_size = 2;
  config.accumulation_steps = 2;
  set_prefetch(config, 0);
  auto const codes_only = [&] {
    auto c = config;
    weights_of(c).secondary_group_size = 1;
    return c;
  }();
  Training both(config, QuadraticModel(blocks, true)),
      codes(codes_only, QuadraticModel(blocks, true));
  for (int k = 0; k < 3; ++k) (void)both.step(1e-2), (void)codes.step(1e-2);
  EXPECT_EQ(both.weights(), codes.weights()) << "secondary shards hold what was decoded";
}

TEST(QuantizedGather, HasCodesOf8Or4Bits) {
  auto const comm = make_comm();
  auto const compute = memory::make_inline_queue("compute");
  EXPECT_THROW((void)zero::make_engine(quantized(5), QuadraticModel(1).units(), *comm, *compute),
               InternalError);
}

}  // namespace
}  // namespace tessera::test
