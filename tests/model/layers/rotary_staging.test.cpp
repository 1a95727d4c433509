#include "layers/host_staging.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

namespace tessera::model::detail {
namespace {

using kernels::RotaryOptions;
using kernels::RotaryScaling;

struct RotaryStagingTest : testing::Test {
  std::unique_ptr<Queue> queue = memory::make_worker_queue("compute");
  Arena arena{"activations", memory::Purpose::activations};

  PassContext pass(std::int64_t sequence, Dtype dtype = Dtype::fp32) {
    return {.compute = *queue, .arena = arena, .dtype = dtype, .batch = 1, .sequence = sequence};
  }
  std::vector<float> cosines(RotaryStaging& staging, std::int64_t sequence) {
    ArenaScope const scope(arena);
    auto const tables = staging.stage(pass(sequence), sequence, Staging::real);
    queue->record().wait("the copy", std::chrono::seconds(60));
    EXPECT_EQ(tables.cos.dim(0), sequence);
    return {tables.cos.as<float>(), tables.cos.as<float>() + tables.cos.numel()};
  }
};

TEST_F(RotaryStagingTest, TablesOfGrowingAndShrinkingLengthsAgree) {
  RotaryStaging staging({.rotary_dim = 4, .theta = 100.0});
  auto const longest = cosines(staging, 100);
  for (std::int64_t sequence : {1, 3, 17, 40, 100, 200, 5}) {
    auto const some = cosines(staging, sequence);
    for (std::size_t i = 0; i < std::min(some.size(), longest.size()); ++i)
      ASSERT_EQ(some[i], longest[i]) << sequence;
  }
  for (std::size_t t = 0; t < 100; ++t) {
    EXPECT_NEAR(longest[2 * t], std::cos(static_cast<double>(t)), 1e-5);
    EXPECT_NEAR(longest[2 * t + 1], std::cos(static_cast<double>(t) / 10.0), 1e-5);
  }
}

TEST_F(RotaryStagingTest, DynamicScalingDependsOnTheLengthBeyondTheTrainedOne) {
  RotaryStaging staging({.scaling = RotaryScaling::dynamic,
                         .rotary_dim = 4,
                         .theta = 100.0,
                         .factor = 4.0,
                         .max_positions = 16});
  auto const trained = cosines(staging, 16), twice = cosines(staging, 32),
             more = cosines(staging, 40);
  EXPECT_EQ(trained[2 * 5 + 1], cosines(staging, 8)[2 * 5 + 1]);
  EXPECT_NE(trained[2 * 5 + 1], twice[2 * 5 + 1]);
  EXPECT_NE(twice[2 * 5 + 1], more[2 * 5 + 1]);
  EXPECT_EQ(trained, cosines(staging, 16)) << "as if nothing longer had been between";
}

TEST_F(RotaryStagingTest, APlannedPassTakesTheSameMemoryAndComputesNothing) {
  RotaryStaging staging({.rotary_dim = 4});
  auto const real = arena.mark();
  staging.stage(pass(50), 50, Staging::planned);
  auto const planned = arena.mark();
  arena.rollback(real);
  staging.stage(pass(50), 50, Staging::real);
  EXPECT_EQ(arena.mark(), planned);
  queue->record().wait("the copy", std::chrono::seconds(60));
}

}  // namespace
}  // namespace tessera::model::detail
