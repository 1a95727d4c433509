/// The states of a rank: their homes, their owners, and the storages of tiled and other units.
#include "optimizer/state_table.hpp"

#include <cstring>

#include "detail_fixture.hpp"
#include "engine_settings.hpp"

namespace tessera::zero::detail {
namespace {

EngineConfig config_of(char const* optimizer) {
  EngineConfig c;
  c.partition = zero::partition_of(1);
  c.dtype = Dtype::bf16;
  c.optimizer = optim::make_spec(optimizer);
  return c;
}

StateHome home_of(std::vector<StateLayout> const& layouts, std::string const& name) {
  for (auto const& layout : layouts)
    if (layout.spec.name == name) return layout.home;
  throw InternalError("no state " + name);
}

TEST(StateLayouts, NameTheHomeOfEachState) {
  auto config = config_of("AdamW8bit");
  test::Parts const parts(config);
  PartitionPlan const plan(test::two_units(), 1, kernels::quantization_chunk);
  StoreContext const context{config, plan, {&plan, first_rank, true}, *parts.comm, *parts.compute};
  auto const layouts = state_layouts(context, parts.rules, config.optimizer);
  EXPECT_EQ(home_of(layouts, "fp32"), StateHome::memory);
  EXPECT_EQ(home_of(layouts, "exp_avg"), StateHome::quantized);
  EXPECT_EQ(home_of(layouts, optim::absmax_state("exp_avg").name), StateHome::memory);
  test::states_of(config).optimizer_swap.emplace();
  auto const on_drive = state_layouts(context, parts.rules, config.optimizer);
  EXPECT_EQ(home_of(on_drive, "fp32"), StateHome::drive);
  EXPECT_EQ(home_of(on_drive, "exp_avg"), StateHome::quantized);
  EXPECT_EQ(home_of(on_drive, optim::absmax_state("exp_avg").name), StateHome::memory);
}

/// Every rank has all values of a state that is not spread, and its shard of the others.
TEST(StateLayouts, ReplicateStatesThatAreNotSpread) {
  auto config = config_of("Adafactor");
  test::Parts const parts(config);
  PartitionPlan const plan(test::two_units(), 2);
  StoreContext const context{config, plan, {&plan, Rank(1), false}, *parts.comm, *parts.compute};
  for (auto const& layout : state_layouts(context, parts.rules, config.optimizer)) {
    EXPECT_EQ(layout.ownership.replicated, !optim::is_spread(layout.spec.extent))
        << layout.spec.name;
    EXPECT_EQ(layout.ownership.rank, Rank(1));
    EXPECT_EQ(layout.ownership.plan, layout.plan.get());
  }
}

TEST(StateTable, SplitsTheUnitsBetweenTwoStorages) {
  test::Parts const parts(config_of("AdamW"));
  auto const weights = make_resident_weights(parts.context);
  auto const layouts = [&] {
    return state_layouts(parts.context, parts.rules, parts.config.optimizer);
  };
  StatePlacement const placement{memory::MemorySpace::host, parts.compute.get()};
  StateTable const complete(parts.context, layouts(), *weights, {}, placement);
  TiledUnits const first{UnitIndex(1), TileList({96}, 1024), StorageKind::host,
                         UpdateQueue::worker};
  StateTable const split(parts.context, layouts(), *weights, first, placement);
  EXPECT_EQ(&complete.storage(UnitIndex(0)), &complete.storage(StorageKind::resident));
  EXPECT_EQ(&split.storage(UnitIndex(0)), &split.storage(StorageKind::host));
  EXPECT_EQ(&split.storage(UnitIndex(1)), &split.storage(StorageKind::resident));
  EXPECT_EQ(split.bytes(1), complete.bytes(1));
  EXPECT_EQ(split.optimizer_bytes(), complete.bytes(1) + complete.bytes(2));
  EXPECT_EQ(complete.host_bytes(), complete.bytes(master_weights) + complete.optimizer_bytes());
  EXPECT_EQ(split.drive_use().file_bytes, 0u);
  for (UnitIndex u = first_unit; u < parts.plan.end_unit(); ++u) {
    std::memset(split.region(1, u), 1, 4 * static_cast<std::size_t>(parts.plan.unit(u).numel));
    EXPECT_EQ(split.shard(1, u), split.region(1, u)) << "one rank owns the region";
  }
}

}  // namespace
}  // namespace tessera::zero::detail
