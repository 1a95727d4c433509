/// The schedule of updates as a value, and the combinations that it refuses.
#include "optimizer/update_schedule.hpp"

#include "detail_fixture.hpp"
#include "engine_settings.hpp"

namespace tessera::zero::detail {
namespace {

UpdateStep step(std::size_t index, Tile range, StorageKind storage, UpdateQueue queue) {
  return {index, range, storage, queue};
}

TEST(UpdateSchedule, HasOneStepForEachUnitWhoseStatesAreInMemory) {
  UpdateSchedule const schedule({5000, 0, 10}, {});
  EXPECT_EQ(schedule.steps(), (std::vector<UpdateStep>{{0, {UnitIndex(0), 0, 5000}},
                                                       {1, {UnitIndex(1), 0, 0}},
                                                       {2, {UnitIndex(2), 0, 10}}}));
  EXPECT_EQ(schedule.of(UnitIndex(1)).size(), 1u);
  EXPECT_EQ(schedule.of(UnitIndex(2)).front(), schedule[2]);
}

TEST(UpdateSchedule, CutsWhatTheHostUpdatesIntoTilesOfTheWorker) {
  TileList const tiles({3000, 10}, 2048);
  UpdateSchedule const schedule({3000, 10, 700},
                                {UnitIndex(2), tiles, StorageKind::host, UpdateQueue::worker});
  auto const host = [&](std::size_t index) {
    return step(index, tiles[index], StorageKind::host, UpdateQueue::worker);
  };
  EXPECT_EQ(schedule.steps(),
            (std::vector<UpdateStep>{host(0), host(1), host(2), {3, {UnitIndex(2), 0, 700}}}));
  EXPECT_EQ(schedule.of(UnitIndex(0)).size(), 2u);
}

TEST(UpdateSchedule, HasNoStepForAUnitOfADriveWithoutElements) {
  TileList const tiles({1024, 0, 1500}, 1024);
  UpdateSchedule const schedule({1024, 0, 1500},
                                {UnitIndex(3), tiles, StorageKind::drive, UpdateQueue::compute});
  ASSERT_EQ(schedule.steps().size(), 3u);
  EXPECT_TRUE(schedule.of(UnitIndex(1)).empty());
  EXPECT_EQ(schedule[2],
            step(2, {UnitIndex(2), 1024, 476}, StorageKind::drive, UpdateQueue::compute));
}

EngineConfig config_of(char const* optimizer, Dtype dtype = Dtype::bf16) {
  EngineConfig c;
  c.partition = zero::partition_of(1);
  c.dtype = dtype;
  c.optimizer = optim::make_spec(optimizer);
  return c;
}

TEST(TiledUnits, AreCompleteRegionsForSumsAndMatricesOnADrive) {
  for (auto const* name : {"AdamW", "Lamb", "Muon"}) {
    auto config = config_of(name);
    test::states_of(config).optimizer_swap.emplace().tile_numel = 1;
    std::vector<memory::UnitSpec> const units{{"a", {test::parameter("w", {60, 50})}}};
    PartitionPlan const plan(units, 1);
    test::Parts const parts(config);
    StoreContext const context{
        config, plan, {&plan, first_rank, true}, *parts.comm, *parts.compute};
    auto const optimizer = optim::make_optimizer(config.optimizer);
    auto const tiled = tiled_units(context, *optimizer, first_unit);
    bool const cuts = config.optimizer.algorithm == "AdamW";
    EXPECT_EQ(tiled.tiles.size(), cuts ? 3u : 1u) << name;
    EXPECT_EQ(tiled.end, plan.end_unit());
    EXPECT_EQ(tiled.storage, StorageKind::drive);
    EXPECT_EQ(tiled.queue, UpdateQueue::compute);
  }
}

TEST(TiledUnits, AreThoseThatTheHostUpdates) {
  auto config = config_of("AdamW");
  test::states_of(config).optimizer_offload.emplace();
  test::Parts const parts(config);
  auto const optimizer = optim::make_optimizer(config.optimizer);
  auto const tiled = tiled_units(parts.context, *optimizer, UnitIndex(1));
  EXPECT_EQ(tiled.end, UnitIndex(1));
  EXPECT_EQ(tiled.storage, StorageKind::host);
  EXPECT_EQ(tiled.queue, UpdateQueue::worker);
  EXPECT_EQ(tiled_units(parts.context, *optimizer, first_unit).end, first_unit);
}

}  // namespace
}  // namespace tessera::zero::detail
