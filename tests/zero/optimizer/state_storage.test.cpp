/// States in memory, on a drive and quantized: where a range is, what it costs, and what stays.
#include "optimizer/state_storage.hpp"

#include <filesystem>

#include "detail_fixture.hpp"
#include "engine_settings.hpp"
#include "optimizer/state_table.hpp"

namespace tessera::zero::detail {
namespace {

EngineConfig config_of(char const* optimizer) {
  EngineConfig c;
  c.partition = zero::partition_of(1);
  c.dtype = Dtype::bf16;
  c.optimizer = optim::make_spec(optimizer);
  return c;
}

struct Storages : test::Parts {
  explicit Storages(EngineConfig const& given)
      : Parts(given),
        weights(make_resident_weights(context)),
        layouts(state_layouts(context, rules, config.optimizer)),
        inputs{layouts, plan, *weights, memory::MemorySpace::host} {}

  std::unique_ptr<StateStorage> memory() const {
    return make_memory_storage(inputs, first_unit, plan.end_unit());
  }

  std::unique_ptr<WeightStore> weights;
  std::vector<StateLayout> layouts;
  StorageInputs inputs;
};

TEST(MemoryStorage, HasConsecutiveUnits) {
  Storages s(config_of("AdamW"));
  auto const all = s.memory();
  auto const head = make_memory_storage(s.inputs, UnitIndex(1), s.plan.end_unit());
  std::int64_t const block = s.plan.unit(UnitIndex(0)).padded_numel,
                     rest = s.plan.unit(UnitIndex(1)).padded_numel;
  EXPECT_EQ(all->bytes(1), 4 * static_cast<std::size_t>(block + rest));
  EXPECT_EQ(head->bytes(1), 4 * static_cast<std::size_t>(rest));
  auto const* const first = static_cast<float const*>(all->region(1, UnitIndex(0)));
  EXPECT_EQ(all->region(1, UnitIndex(1)), first + block);
  EXPECT_EQ(all->values(1, {0, {UnitIndex(1), 16, 16}}), first + block + 16);
  EXPECT_EQ(head->region_outside_step(1, UnitIndex(1)), head->region(1, UnitIndex(1)));
  EXPECT_NE(head->region(1, UnitIndex(1)), nullptr);
  EXPECT_EQ(all->space(1), memory::MemorySpace::host);
}

TEST(MemoryStorage, TakesWorkingWeightsAsMasters) {
  auto config = config_of("AdamW");
  config.dtype = Dtype::fp32;
  Storages s(config);
  auto const storage = s.memory();
  EXPECT_EQ(s.layouts[master_weights].home, StateHome::working_weights);
  EXPECT_EQ(storage->bytes(master_weights), 0u);
  EXPECT_EQ(storage->region(master_weights, UnitIndex(1)), s.weights->region(UnitIndex(1)));
}

/// A range is in memory while it is open, and its values are in the region after
/// finish_transfers().
TEST(DriveStorage, KeepsWhatChangesInAnOpenRange) {
  auto config = config_of("AdamW");
  auto& swap = test::states_of(config).optimizer_swap.emplace();
  swap.transfers.directories = {std::filesystem::path(::testing::TempDir())};
  swap.buffer_count = 2;
  Storages s(config);
  auto const storage = make_drive_storage(s.inputs, swap, s.memory());
  EXPECT_EQ(storage->bytes(1), 0u);
  EXPECT_GT(storage->drive_use().file_bytes, 0u);
  EXPECT_GT(storage->drive_use().buffer_bytes, 0u);
  for (UnitIndex u = first_unit; u < s.plan.end_unit(); ++u)
    *static_cast<float*>(storage->region(1, u)) = 1.0f + static_cast<float>(position(u));
  for (bool const changes : {true, false})
    for (UnitIndex u = first_unit; u < s.plan.end_unit(); ++u) {
      UpdateStep const step{position(u), {u, 0, s.plan.unit(u).padded_numel}};
      storage->open(*s.compute, step);
      *static_cast<float*>(storage->values(1, step)) += 10.0f;
      storage->close(*s.compute, step,
                     changes ? StateStorage::Values::changed : StateStorage::Values::unchanged);
    }
  storage->finish_transfers();
  for (UnitIndex u = first_unit; u < s.plan.end_unit(); ++u)
    EXPECT_EQ(*static_cast<float*>(storage->region(1, u)), 11.0f + static_cast<float>(position(u)));
}

/// States that are not element-wise stay in memory.
TEST(DriveStorage, LeavesSmallStatesInMemory) {
  auto config = config_of("Adafactor");
  auto& swap = test::states_of(config).optimizer_swap.emplace();
  swap.transfers.directories = {std::filesystem::path(::testing::TempDir())};
  Storages s(config);
  auto const storage = make_drive_storage(s.inputs, swap, s.memory());
  std::size_t in_memory = 0;
  for (std::size_t k = 0; k < s.layouts.size(); ++k) {
    bool const is_small = s.layouts[k].spec.extent != optim::Extent::elementwise;
    EXPECT_EQ(storage->bytes(k) > 0, is_small) << s.layouts[k].spec.name;
    in_memory += is_small;
  }
  EXPECT_GT(in_memory, 0u);
}

TEST(QuantizedStorage, HasCodesAndLeavesTheRestToTheInnerStorage) {
  Storages s(config_of("AdamW"));
  auto const spec = optim::make_spec("AdamW8bit");
  PartitionPlan const plan({{"block", {test::parameter("w", {70, 64})}},
                            {"head", {test::parameter("norm", {64}, false)}}},
                           1, kernels::quantization_chunk);
  StoreContext const context{s.config, plan, {&plan, first_rank, true}, *s.comm, *s.compute};
  auto const layouts = state_layouts(context, s.rules, spec);
  StorageInputs const inputs{layouts, plan, *s.weights, memory::MemorySpace::host};
  auto const storage =
      make_quantized_storage(inputs, make_memory_storage(inputs, first_unit, plan.end_unit()));
  ASSERT_NE(storage->quantized(1), nullptr);
  EXPECT_EQ(storage->quantized(master_weights), nullptr);
  EXPECT_EQ(storage->bytes(1), storage->quantized(1)->bytes());
  auto* const codes = static_cast<std::uint8_t*>(storage->region(1, first_unit));
  EXPECT_EQ(codes, storage->quantized(1)->codes(first_unit));
  EXPECT_EQ(storage->values(1, {0, {first_unit, 1024, 1024}}), codes + 1024);
  EXPECT_EQ(storage->values(1, {1, {UnitIndex(1), 0, 64}}), nullptr) << "too small for codes";
  EXPECT_EQ(storage->bytes(master_weights), 4 * static_cast<std::size_t>(plan.padded_count()));
}

}  // namespace
}  // namespace tessera::zero::detail
