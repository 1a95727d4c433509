/// A bit that flips in the states of a rank between two updates is found, whatever they are and
/// wherever the update runs.
#include "optimizer/state_hashes.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "engine_fixture.hpp"

namespace tessera::zero::detail {
namespace {

using namespace tessera::test;

EngineConfig hashing_config(int stage, Dtype dtype = Dtype::fp32) {
  auto out = config_of(stage, dtype);
  out.hash_states = true;
  return out;
}

void flip_bit(float* value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, value, sizeof bits);
  bits ^= 1u;
  std::memcpy(value, &bits, sizeof bits);
}

TEST(StateHashes, StatesThatOnlyUpdatesWriteAreUnchanged) {
  for (int stage = 0; stage <= 3; ++stage)
    for (Dtype const dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
      Training training(hashing_config(stage, dtype));
      for (int k = 0; k < 4; ++k) {
        training.step(1e-2);
        EXPECT_EQ(training.engine->changed_states(), std::nullopt) << stage << ", step " << k;
      }
      auto const scaler = training.engine->scaler_state();
      for (auto const& state : training.engine->state()) flip_bit(state.unit_shards[0]);
      training.engine->load_state(4, scaler);
      training.step(1e-2);
      EXPECT_EQ(training.engine->changed_states(), std::nullopt) << stage << ", loaded";
    }
}

TEST(StateHashes, AFlippedBitIsFoundNowAndByTheNextUpdateOfItsRank) {
  for (int stage = 0; stage <= 3; ++stage)
    for (Dtype const dtype : {Dtype::fp32, Dtype::bf16})
      for (std::size_t state = 0; state < 3; ++state)
        for (auto u = first_unit; u < UnitIndex(5); ++u) {
          Training training(hashing_config(stage, dtype));
          training.step(1e-2);
          auto const states = training.engine->state();
          ASSERT_FALSE(training.engine->state_is_snapshot());
          bool const is_first = training.rank() == 0;  // its shards begin with values
          auto const expected = is_first ? std::optional(u) : std::nullopt;
          if (is_first) flip_bit(states[state].unit_shards[position(u)]);
          EXPECT_EQ(training.engine->changed_states(), expected)
              << "stage " << stage << ", state " << state << ", unit " << position(u);
          training.step(1e-2);
          EXPECT_EQ(training.engine->changed_states(), std::nullopt) << "told once";
          if (is_first) flip_bit(states[state].unit_shards[position(u)]);
          training.step(1e-2);
          training.step(1e-2);
          EXPECT_EQ(training.engine->changed_states(), expected) << "the first update found it";
        }
}

/// One unit is updated tile by tile by a worker, the other one by the compute queue.
TEST(StateHashes, TilesOfAWorkerAreCompared) {
  TileList const tiles({1500, 0}, 1024);
  UpdateSchedule const schedule({1500, 40},
                                {UnitIndex(1), tiles, StorageKind::host, UpdateQueue::worker});
  auto const compute = memory::make_inline_queue("compute"),
             worker = memory::make_worker_queue("optimizer");
  StateHashes hashes(schedule, {Dtype::fp32, Dtype::bf16}, *compute);
  std::vector<float> master(1540, 1.0f);
  std::vector<std::uint16_t> state(1540, 3);
  auto const visit = [&](auto const& call) {
    std::size_t first = 0;
    for (auto const& step : schedule.steps()) {
      optim::Segment segment;
      segment.master = &master[first];
      segment.states = {&state[first]};
      segment.numel = step.range.numel;
      first += static_cast<std::size_t>(step.range.numel);
      call(step.queue == UpdateQueue::worker ? *worker : *compute, step,
           optim::Segments{{segment}});
    }
    worker->record().wait("tiles", std::chrono::seconds(60));
  };
  auto const update = [&] {
    visit([&](auto& queue, auto& step, auto const& s) { hashes.compare(queue, step, s); });
    for (auto& value : master) value += 1.0f;
    visit([&](auto& queue, auto& step, auto const& s) { hashes.keep(queue, step, s); });
  };
  update();
  update();
  EXPECT_EQ(hashes.changed(*worker), std::nullopt);
  struct Change {
    std::size_t at;
    UnitIndex unit;
  };
  for (auto const& [at, unit] : {Change{1400, UnitIndex(0)}, Change{1539, UnitIndex(1)}}) {
    state[at] ^= 4;
    update();
    EXPECT_EQ(hashes.changed(*worker), std::optional(unit)) << at;
    flip_bit(&master[at]);
    update();
    EXPECT_EQ(hashes.changed(*worker), std::optional(unit)) << at;
    flip_bit(&master[at]);
    hashes.forget();
    update();
    EXPECT_EQ(hashes.changed(*worker), std::nullopt) << "they have changed outside an update";
  }
}

/// They, and the mean of the errors, which a save takes, change states elsewhere.
TEST(StateHashes, CompressedStepsRaiseNoAlarm) {
  auto config = hashing_config(0);
  config.optimizer = optim::make_spec("OneBitAdam", {{"freeze_step", 3.0}}, optim::one_group());
  Training training(config);
  for (int k = 0; k < 8; ++k) {
    training.step(1e-2);
    if (k == 5) (void)training.engine->state();
    EXPECT_EQ(training.engine->changed_states(), std::nullopt) << "step " << k;
  }
}

TEST(StateHashes, WithoutTheOptionNothingIsFound) {
  auto config = hashing_config(2);
  config.hash_states = false;
  Training training(config);
  training.step(1e-2);
  flip_bit(training.engine->state()[1].unit_shards[1]);
  training.step(1e-2);
  EXPECT_EQ(training.engine->changed_states(), std::nullopt);
}

}  // namespace
}  // namespace tessera::zero::detail
