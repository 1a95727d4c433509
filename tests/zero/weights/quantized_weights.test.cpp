/// A quantized base: codes of the stage, numbers for a lease, and training as with those numbers.
#include "weights/quantized_weights.hpp"

#include <filesystem>

#include "engine_fixture.hpp"
#include "engine_settings.hpp"
#include "tessera/memory/swap_file.hpp"

namespace tessera::test {
namespace {

struct Case {
  int stage;
  Dtype dtype;
  zero::QuantizedBase base;
};
void PrintTo(Case const& c, std::ostream* out) {
  *out << "stage " << c.stage << " " << name_of(c.dtype) << (c.base.is_int8 ? " int8" : " nf4")
       << (c.base.double_quantized ? " double" : "") << (c.base.transposed ? " transposed" : "");
}

/// The matrices "w" of blocks are codes; the embedding and "k" keep their values.
class Quantized : public ::testing::TestWithParam<Case> {
 protected:
  zero::EngineConfig config() const {
    auto c = config_of(GetParam().stage, GetParam().dtype);
    c.quantized_base = GetParam().base;
    return c;
  }
  static QuadraticModel model() { return QuadraticModel(3).train_only({"b", "s"}); }
  kernels::WeightCodes codes() const {
    auto const& base = GetParam().base;
    using enum kernels::WeightFormat;
    return {.format = base.is_int8            ? int8
                      : base.double_quantized ? nf4_double
                                              : nf4,
            .rows = base.transposed ? 21 : 7,
            .columns = base.transposed ? 7 : 21,
            .transposed = base.transposed};
  }
  /// What becomes of the initial values of "w" of @p unit.
  std::vector<float> expected(UnitIndex unit) const {
    std::vector<float> values(7 * 21);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = rounded(QuadraticModel::initial(unit, 0, static_cast<std::int64_t>(i)),
                          GetParam().base.stored_dtype);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(codes().bytes()));
    kernels::encode_weights(codes(), values.data(), bytes.data());
    auto const queue = memory::make_inline_queue("compute");
    kernels::decode_weights(*queue, {values.data(), Dtype::fp32, {7 * 21}},
                            {bytes.data(), Dtype::uint8, {codes().bytes()}}, codes());
    for (auto& value : values) value = rounded(value, GetParam().base.compute_dtype);
    return values;
  }
  void expect_weights(Training& training) {
    training.model.look(
        *training.engine, *training.compute, [&](UnitIndex u, int p, std::int64_t i, float value) {
          auto const& unit = training.model.units()[position(u)];
          auto const& spec = unit.parameters[static_cast<std::size_t>(p)];
          if (spec.trains) return;
          float const want = spec.name == "w"
                                 ? expected(u)[static_cast<std::size_t>(i)]
                                 : rounded(QuadraticModel::initial(u, p, i), GetParam().dtype);
          ASSERT_EQ(value, want) << unit.name << " " << spec.name << " " << i;
        });
  }
};

TEST_P(Quantized, ALeaseHasTheNumbersOfTheCodes) {
  Training training(config(), model());
  expect_weights(training);
  training.step(1e-2);
  expect_weights(training);
}

/// Gradients of the quadratic model depend on the element only.
TEST_P(Quantized, OthersTrainBitForBitAsWithoutIt) {
  auto plain = config();
  plain.quantized_base.reset();
  Training quantized(config(), model()), values(plain, model());
  std::vector<float> got, want;
  for (auto* const run : {&quantized, &values}) {
    for (int k = 0; k < 3; ++k) run->step(1e-2);
    run->model.look(*run->engine, *run->compute,
                    [&](UnitIndex u, int p, std::int64_t, float value) {
                      auto const& unit = run->model.units()[position(u)];
                      if (unit.parameters[static_cast<std::size_t>(p)].trains)
                        (run == &quantized ? got : want).push_back(value);
                    });
  }
  EXPECT_EQ(got, want);
}

TEST_P(Quantized, MemoryIsThatOfTheCodes) {
  Training training(config(), model());
  auto plain = config();
  plain.quantized_base.reset();
  Training values(plain, model());
  auto const n = training.ranks();
  auto const bytes = [&](std::int64_t numel, std::size_t size) {
    std::int64_t const shard = round_up(ceil_divide(numel, n), std::int64_t{32});
    return static_cast<std::int64_t>(size) * shard * (GetParam().stage == 3 ? 1 : n);
  };
  std::int64_t const codes_of_block = bytes(round_up(codes().bytes(), std::int64_t{32}), 1);
  std::int64_t values_of_blocks = 0, others_of_blocks = 0;
  for (int b = 0; b < 3; ++b) {
    std::int64_t const k = round_up(std::int64_t{30} * (1 + b), std::int64_t{32});
    values_of_blocks += bytes(160 + k, size_of(GetParam().dtype));
    others_of_blocks += bytes(k, size_of(GetParam().dtype));
  }
  EXPECT_EQ(static_cast<std::int64_t>(values.engine->memory().weights) -
                static_cast<std::int64_t>(training.engine->memory().weights),
            values_of_blocks - others_of_blocks - 3 * codes_of_block);
  EXPECT_EQ(training.engine->frozen_plan(), values.engine->frozen_plan());
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (int stage = 0; stage <= 3; ++stage) {
    out.push_back({stage, Dtype::fp32, {}});
    out.push_back({stage, Dtype::fp32, {.double_quantized = true, .transposed = true}});
    out.push_back({stage, Dtype::fp32, {.is_int8 = true, .compute_dtype = Dtype::bf16}});
    out.push_back(
        {stage,
         Dtype::bf16,
         {.double_quantized = true, .stored_dtype = Dtype::bf16, .compute_dtype = Dtype::bf16}});
    out.push_back({stage, Dtype::fp32, {.is_int8 = true, .transposed = true}});
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(Stages, Quantized, ::testing::ValuesIn(cases()));

TEST(QuantizedBase, OnADriveChangesNoBit) {
  auto config = config_of(3);
  config.quantized_base = {.double_quantized = true};
  auto const model = QuadraticModel(3).train_only({"b", "s"});
  Training in_memory(config, model);
  weights_of(config).weight_swap = {{.directories = {std::filesystem::path(::testing::TempDir())},
                                     .block_size = memory::swap_alignment,
                                     .queue_depth = 2},
                                    2,
                                    100000,
                                    0};
  Training swapped(config, model);
  EXPECT_GT(swapped.engine->memory().swapped, 0u);
  for (int k = 1; k <= 3; ++k) {
    in_memory.step(1e-2);
    swapped.step(1e-2);
    EXPECT_EQ(swapped.weights(), in_memory.weights());
  }
}

}  // namespace
}  // namespace tessera::test
