/// On one rank a reduction is the identity, except for the rounding to the wire dtype.
#include "gradients/reducer.hpp"

#include <vector>

#include "detail_fixture.hpp"

namespace tessera::zero::detail {
namespace {

EngineConfig bf16_wire() {
  EngineConfig c;
  c.communication_dtype = Dtype::bf16;
  c.reduce_bucket_size = 64;  // several buckets
  return c;
}

struct Arrays {
  explicit Arrays(test::Parts const& parts)
      : values(static_cast<std::size_t>(parts.plan.unit(UnitIndex(0)).padded_numel)) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = 1.0f + 0.001f * static_cast<float>(i);
  }
  memory::TensorView view() {
    return {values.data(), Dtype::fp32, {static_cast<std::int64_t>(values.size())}};
  }
  std::vector<float> values;
};

TEST(Reducer, AllReduceRoundsToTheWireDtype) {
  test::Parts parts(bf16_wire());
  Reducer reducer(parts.context, Averaging{});
  Arrays a(parts), before(parts);
  reducer.all_reduce(a.view(), {});
  reducer.finish();
  for (std::size_t i = 0; i < a.values.size(); ++i)
    ASSERT_EQ(a.values[i], static_cast<float>(bfloat16(before.values[i]))) << i;
  EXPECT_EQ(reducer.buffer_bytes(), 2 * a.values.size());
}

TEST(Reducer, MultipliesBeforeAndAfterTheSum) {
  test::Parts parts(bf16_wire());
  Reducer reducer(parts.context, Averaging{.before = 0.5, .after = 4.0});
  Arrays a(parts), before(parts);
  reducer.all_reduce(a.view(), {});
  reducer.finish();
  for (std::size_t i = 0; i < a.values.size(); ++i)
    ASSERT_EQ(a.values[i], 2.0f * static_cast<float>(bfloat16(before.values[i]))) << i;
}

TEST(Reducer, ReduceScatterAddsToTheShard) {
  test::Parts parts;
  Reducer reducer(parts.context, Averaging{});
  Arrays whole(parts), shard(parts), before(parts);
  int retired = 0;
  auto const retire = [&](memory::Event const&) { ++retired; };
  reducer.reduce_scatter(first_unit, whole.view(), shard.view(), {.first = false}, retire);
  reducer.finish();
  for (std::size_t i = 0; i < shard.values.size(); ++i)
    ASSERT_EQ(shard.values[i], 2 * before.values[i]) << i;
  EXPECT_EQ(retired, 1);
  reducer.reduce_scatter(first_unit, before.view(), shard.view(), {}, retire);
  reducer.wait_all();
  EXPECT_EQ(shard.values, before.values);
  EXPECT_EQ(retired, 2);
  EXPECT_EQ(reducer.buffer_bytes(), 0u) << "the wire has the gradients' dtype";
}

/// One reduction stays in flight; the next one retires it.
TEST(Reducer, RetiresTheOlderBufferWhenTheNextIsReduced) {
  test::Parts parts;
  Reducer reducer(parts.context, Averaging{});
  Arrays a(parts), b(parts), out(parts);
  std::vector<int> retired;
  reducer.reduce_scatter(first_unit, a.view(), out.view(), {}, [&](auto) { retired.push_back(1); });
  EXPECT_TRUE(retired.empty());
  reducer.reduce_scatter(first_unit, b.view(), out.view(), {}, [&](auto) { retired.push_back(2); });
  EXPECT_EQ(retired, std::vector<int>{1});
  reducer.retire_all();
  EXPECT_EQ(retired, (std::vector<int>{1, 2}));
  reducer.wait_all();
}

}  // namespace
}  // namespace tessera::zero::detail
