/// The chain of sources on one process: which source a gather uses, and when shards are read.
#include "weights/gather_source.hpp"

#include "detail_fixture.hpp"
#include "engine_settings.hpp"

namespace tessera::zero::detail {
namespace {

constexpr UnitIndex unit{0};

/// Shards of ones, which counts what is fetched.
class CountedShards final : public ShardStore {
 public:
  explicit CountedShards(std::int64_t numel) : values_(static_cast<std::size_t>(numel), 1.0f) {}
  Shard fetch(UnitIndex, memory::Event const& before) override {
    ++fetches;
    return {{region(unit), Dtype::fp32, {static_cast<std::int64_t>(values_.size())}}, before, {}};
  }
  void fetched(UnitIndex, memory::Event const&) override { ++ends; }
  bool read_ahead(UnitIndex) override { return false; }
  void* region(UnitIndex) const override { return values_.data(); }
  WeightReport report() const override { return {}; }

  int fetches = 0, ends = 0;

 private:
  mutable std::vector<float> values_;
};

struct Chain : test::Parts {
  Chain(int bits, bool has_secondary)
      : test::Parts([&] {
          EngineConfig c;
          c.partition = partition_of(3);
          test::weights_of(c).quantized_weight_bits = bits;
          return c;
        }()) {
    if (has_secondary) context.secondary = comm.get();
    source = make_gather_source(context, shards);
  }
  void start() {
    auto const gather = source->start(unit, {{out.data(), Dtype::fp32, {numel}}, {}, 0});
    gather.arriving.order_before(*compute);
  }
  void finish() { source->finish(unit, {{out.data(), Dtype::fp32, {numel}}, {}, 0}); }
  WeightReport bytes() const {
    WeightReport report;
    source->add_bytes(report);
    return report;
  }

  std::int64_t numel = plan.unit(unit).padded_numel;
  std::vector<float> out = std::vector<float>(static_cast<std::size_t>(numel), 7.0f);
  CountedShards shards{numel};
  std::unique_ptr<GatherSource> source;
};

TEST(GatherSource, AllGathersTheShardInEachPass) {
  Chain chain(0, false);
  for (int pass = 1; pass <= 2; ++pass) {
    chain.start();
    chain.finish();
    chain.source->drop(unit);
    EXPECT_EQ(chain.shards.fetches, pass);
    EXPECT_EQ(chain.shards.ends, pass);
    EXPECT_TRUE(chain.source->reads_shard(unit));
  }
  EXPECT_EQ(chain.out, std::vector<float>(chain.out.size(), 1.0f));
  EXPECT_EQ(chain.bytes().buffer_bytes + chain.bytes().weight_bytes, 0u);
}

TEST(GatherSource, DecodesQuantizedWeightsWhenTheGatherIsFinished) {
  Chain chain(8, false);
  chain.start();
  EXPECT_EQ(chain.out[0], 7.0f) << "only codes have arrived";
  chain.finish();
  EXPECT_NEAR(chain.out[0], 1.0f, 1e-2);
  auto const buffers = chain.bytes().buffer_bytes;
  EXPECT_GT(buffers, 0u);
  for (int pass = 0; pass < 2; ++pass) {
    chain.start();
    chain.source->drop(unit);
    EXPECT_EQ(chain.bytes().buffer_bytes, buffers) << "dropped codes leave their buffer";
  }
}

TEST(GatherSource, ReadsTheShardOnlyUntilTheSecondaryOneIsKept) {
  for (int const bits : {0, 8}) {
    Chain chain(bits, true);
    EXPECT_EQ(chain.bytes().weight_bytes,
              static_cast<std::size_t>(chain.plan.padded_count()) * sizeof(float));
    chain.start();
    EXPECT_TRUE(chain.source->reads_shard(unit)) << "nothing is kept before finish()";
    chain.finish();
    EXPECT_FALSE(chain.source->reads_shard(unit));
    auto const first = std::exchange(chain.out, std::vector<float>(chain.out.size(), 7.0f));
    chain.start();
    chain.finish();
    EXPECT_EQ(chain.out, first);
    EXPECT_EQ(chain.shards.fetches, 1);
    chain.source->forget(unit);
    EXPECT_TRUE(chain.source->reads_shard(unit));
    chain.start();
    EXPECT_EQ(chain.shards.fetches, 2);
  }
}

}  // namespace
}  // namespace tessera::zero::detail
