#include "optimizer/quantized_state.hpp"

#include <cmath>

#include "detail_fixture.hpp"

namespace tessera::zero::detail {
namespace {

/// An embedding, and a block of which one parameter is large enough for codes.
std::vector<memory::UnitSpec> units() {
  return {{"embedding", {test::parameter("wte", {100, 64})}},
          {"block", {test::parameter("w", {70, 64}), test::parameter("b", {70}, false)}}};
}

TEST(QuantizedState, KeepsCodesOfLargeParametersOutsideEmbeddings) {
  PartitionPlan const plan(units(), 1, kernels::quantization_chunk);
  auto const& embedding = plan.unit(first_unit);
  auto const& block = plan.unit(UnitIndex(1));
  EXPECT_FALSE(is_quantized(embedding, embedding.parameters[0]));
  EXPECT_TRUE(is_quantized(block, block.parameters[0]));
  EXPECT_FALSE(is_quantized(block, block.parameters[1]));
  EXPECT_EQ(quantized_bytes(embedding), 6400 * 4);
  EXPECT_EQ(quantized_bytes(block), 4480 + 70 + 70 * 4);
}

/// What is read from codes and written back is the same, for each rank's shard and for replicas.
TEST(QuantizedState, WritesWhatItReads) {
  auto const queue = memory::make_inline_queue("compute");
  for (int const ranks : {1, 3})
    for (bool const replicated : {false, true}) {
      PartitionPlan const plan(units(), ranks, kernels::quantization_chunk);
      Ownership const own{&plan, Rank(ranks - 1), replicated};
      QuantizedState state(optim::quantized_state("m", optim::Encoding::signed_codes), own,
                           memory::MemorySpace::host);
      std::vector<std::vector<float>> absmax, values;
      std::vector<float*> absmax_at, values_at;
      for (auto const& unit : plan.units()) {
        auto const n = static_cast<std::size_t>(unit.shard_numel);
        absmax.emplace_back(n / 256 + 1, 2.0f), values.emplace_back(n);
        for (std::size_t i = 0; i < n; ++i)
          values.back()[i] = std::ldexp(static_cast<float>(i % 97) - 48.0f, -5);
      }
      for (auto& a : absmax) absmax_at.push_back(a.data());
      for (auto& v : values) values_at.push_back(v.data());
      state.write(*queue, absmax_at, values_at);
      auto once = values;
      std::vector<float*> once_at;
      for (auto& v : once) once_at.push_back(v.data());
      state.read(*queue, absmax_at, once_at);
      EXPECT_EQ(once[0], values[0]) << "fp32 values are kept";
      EXPECT_NE(once[1], values[1]) << "codes round";
      state.write(*queue, absmax_at, once_at);
      auto twice = values;
      std::vector<float*> twice_at;
      for (auto& v : twice) twice_at.push_back(v.data());
      state.read(*queue, absmax_at, twice_at);
      EXPECT_EQ(once, twice);
      EXPECT_EQ(state.values(UnitIndex(1), 0, UnitOffset(0)), nullptr);
      EXPECT_EQ(state.codes(first_unit), nullptr);
    }
}

}  // namespace
}  // namespace tessera::zero::detail
