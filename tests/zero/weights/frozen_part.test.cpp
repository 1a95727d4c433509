/// How frozen weights get their values.
#include "weights/frozen_part.hpp"

#include "engine_fixture.hpp"

namespace tessera::test {
namespace {

/// Values are loaded in parts of 262,144 elements: shards that begin and end in a parameter, and
/// parameters that begin and end in a part.
TEST(LoadedWeights, OfLargeUnitsArriveInTheirPlaces) {
  auto const value = [](int parameter, std::int64_t i) {
    return static_cast<float>((i * 7 + parameter) % 509);
  };
  memory::UnitSpec unit{.name = "large", .parameters = {}};
  for (auto const& [name, numel] : {std::pair{"a", 1'500'001}, {"b", 77}, {"c", 1'700'003}})
    unit.parameters.push_back(
        {.name = name, .shape = {numel}, .init = {}, .aliases = {}, .trains = name[0] == 'b'});
  auto const comm = make_comm();
  auto const compute = memory::make_inline_queue("compute");
  for (int const stage : {0, 3}) {
    auto config = config_of(stage, Dtype::fp32);
    auto const engine = zero::make_engine(config, {unit}, *comm, *compute);
    std::size_t const before = memory::MemoryTracker::of_process().current_total();
    engine->initialize(
        [&](UnitIndex, int parameter, std::int64_t first, std::int64_t numel, float* out) {
          EXPECT_LE(memory::MemoryTracker::of_process().current_total() - before, 1u << 20);
          for (std::int64_t i = 0; i < numel; ++i) out[i] = value(parameter, first + i);
        });
    auto const shard = engine->frozen_shard(memory::first_unit);
    auto const& plan = engine->frozen_plan();
    std::int64_t found = 0;
    for (auto const& extent : plan.extents(plan.rank_of(comm->rank()))) {
      auto const start = plan.unit(extent.unit).shard_offset(extent.partition_offset).value();
      int const parameter = extent.parameter == 0 ? 0 : 2;  // in the model
      for (std::int64_t i = 0; i < extent.numel; ++i)
        ASSERT_EQ(shard[static_cast<std::size_t>(start + i)],
                  value(parameter, extent.parameter_offset.value() + i));
      found += extent.numel;
    }
    EXPECT_GE(found, (1'500'001 + 1'700'003) / comm->size() - 64);
  }
}

}  // namespace
}  // namespace tessera::test
