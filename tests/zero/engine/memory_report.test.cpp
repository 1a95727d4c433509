/// Bytes of the model states against numbers computed by hand.
#include "engine/memory_report.hpp"

#include "detail_fixture.hpp"

namespace tessera::zero::detail {
namespace {

/// 40 + 8 + 24 + 8 parameters.
constexpr std::size_t P = 80;

std::size_t formula(EngineConfig const& config, int ranks) {
  return formula_bytes(config, rules_for(config, ranks), PartitionPlan(test::two_units(), ranks),
                       PartitionPlan({}, ranks));
}

EngineConfig config_of(int stage, Dtype dtype, optim::OptimizerSpec optimizer) {
  EngineConfig c;
  c.partition = zero::partition_of(stage);
  c.dtype = c.communication_dtype = dtype;
  c.optimizer = std::move(optimizer);
  return c;
}

TEST(MemoryFormula, CountsTheStatesOfTheOptimizer) {
  auto const adamw = optim::make_spec("AdamW"), plain = optim::make_spec("SGD"),
             momentum = optim::make_spec("SGD", {{"momentum", 0.9}});
  EXPECT_EQ(formula(config_of(0, Dtype::bf16, adamw), 4), 16 * P);
  EXPECT_EQ(formula(config_of(1, Dtype::bf16, adamw), 4), 4 * P + 12 * P / 4);
  EXPECT_EQ(formula(config_of(2, Dtype::bf16, adamw), 4), 2 * P + 14 * P / 4);
  EXPECT_EQ(formula(config_of(3, Dtype::bf16, adamw), 4), 16 * P / 4);
  EXPECT_EQ(formula(config_of(1, Dtype::bf16, momentum), 4), 4 * P + 8 * P / 4);
  EXPECT_EQ(formula(config_of(1, Dtype::bf16, plain), 4), 4 * P + 4 * P / 4);
  EXPECT_EQ(formula(config_of(1, Dtype::fp32, adamw), 4), 8 * P + 8 * P / 4);
  EXPECT_EQ(formula(config_of(1, Dtype::fp32, momentum), 4), 8 * P + 4 * P / 4);
  EXPECT_EQ(formula(config_of(1, Dtype::fp32, plain), 4), 8 * P);
}

/// Rows: 5 + 8 + 3 + 8; columns: 8 + 1 + 8 + 1; four parameters.
TEST(MemoryFormula, CountsReducedExtents) {
  auto spec = optim::make_spec("SGD");
  std::size_t const without = formula(config_of(0, Dtype::fp32, spec), 1);
  auto const added = [&](optim::Extent extent) {
    spec.states = {{"state", Dtype::fp32, extent}};
    return formula(config_of(0, Dtype::fp32, spec), 1) - without;
  };
  EXPECT_EQ(added(optim::Extent::elementwise), 4 * P);
  EXPECT_EQ(added(optim::Extent::per_row), 4u * 24);
  EXPECT_EQ(added(optim::Extent::per_column), 4u * 18);
  EXPECT_EQ(added(optim::Extent::scalar), 4u * 4);
}

}  // namespace
}  // namespace tessera::zero::detail
