/// The schedule of updates as a value, and the combinations that it refuses.
#include "optimizer/update_schedule.hpp"

#include "detail_fixture.hpp"

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
  c.stage = 1;
  c.dtype = dtype;
  c.optimizer = optim::make_spec(optimizer);
  return c;
}

TEST(TiledUnits, AreCompleteRegionsForSumsAndMatricesOnADrive) {
  for (auto const* name : {"AdamW", "Lamb", "Muon"}) {
    auto config = config_of(name);
    config.optimizer_swap.emplace().tile_numel = 1;
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
  config.optimizer_offload.emplace();
  test::Parts const parts(config);
  auto const optimizer = optim::make_optimizer(config.optimizer);
  auto const tiled = tiled_units(parts.context, *optimizer, UnitIndex(1));
  EXPECT_EQ(tiled.end, UnitIndex(1));
  EXPECT_EQ(tiled.storage, StorageKind::host);
  EXPECT_EQ(tiled.queue, UpdateQueue::worker);
  EXPECT_EQ(tiled_units(parts.context, *optimizer, first_unit).end, first_unit);
}

std::string refusal(EngineConfig const& config,
                    memory::MemorySpace space = memory::MemorySpace::device) {
  try {
    validate_update(config, rules_for(config, 1, space), *optim::make_optimizer(config.optimizer));
  } catch (ConfigError const& error) {
    return error.what();
  }
  return {};
}

TEST(ValidateUpdate, RefusesPartsOfAnUpdateThatNeedsCompleteParameters) {
  for (auto const* name : {"Lamb", "Muon"}) {
    auto config = config_of(name);
    config.optimizer_offload.emplace();
    EXPECT_EQ(refusal(config), "");
    config.optimizer_offload->ratio = 0.5;
    EXPECT_NE(refusal(config).find("leave ratio out"), std::string::npos) << name;
    config.optimizer_offload->ratio = 1.0;
    config.optimizer_offload->delay_from = 1;
    EXPECT_NE(refusal(config).find("another element-wise optimizer"), std::string::npos) << name;
    EXPECT_EQ(refusal(config, memory::MemorySpace::host), "") << "nothing is offloaded";
  }
}

TEST(ValidateUpdate, RefusesWhatADriveDoesNotHold) {
  auto config = config_of("AdamW");
  config.optimizer_swap.emplace();
  EXPECT_EQ(refusal(config), "");
  auto changed = config;
  changed.optimizer.set_state_dtype(Dtype::bf16);
  EXPECT_NE(refusal(changed).find("its states of 16 bits"), std::string::npos);
  changed = config;
  changed.stage = 0;
  EXPECT_NE(refusal(changed).find("stage 1, 2 or 3"), std::string::npos);
  changed = config;
  changed.master_dtype = Dtype::bf16;
  EXPECT_NE(refusal(changed).find("bf16 master weights"), std::string::npos);
  EXPECT_EQ(refusal(changed, memory::MemorySpace::host), "") << "the working weights stay";
  auto quantized = config_of("AdamW8bit", Dtype::fp32);
  quantized.optimizer_swap.emplace();
  EXPECT_NE(refusal(quantized, memory::MemorySpace::host).find("no state of it goes to a drive"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::zero::detail
