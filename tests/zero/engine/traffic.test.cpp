/// Bytes that each rank sends in a step, against the theory of ZeRO (SC'20, section 7), exactly.
#include <algorithm>

#include "engine_fixture.hpp"
#include "engine_settings.hpp"

namespace tessera::test {
namespace {

using namespace tied_model;

/// Bytes sent by kind of operation in one step, after a first one; the statistics' all-reduce is
/// counted apart.
struct Traffic {
  std::size_t all_reduce = 0, reduce_scatter = 0, all_gather = 0, statistics = 0;
};

Traffic measure(zero::EngineConfig const& config) {
  Training training(config, QuadraticModel(blocks, true));
  training.step(1e-2);
  training.recording->clear();
  training.step(1e-2);
  Traffic out;
  for (auto const& r : training.recording->records()) {
    if (r.dtype == Dtype::fp64)
      ++out.statistics;
    else if (r.operation == "all_reduce")
      out.all_reduce += r.bytes_sent;
    else if (r.operation == "reduce_scatter")
      out.reduce_scatter += r.bytes_sent;
    else if (r.operation == "all_gather")
      out.all_gather += r.bytes_sent;
    else
      ADD_FAILURE() << "unexpected " << r.operation;
  }
  return out;
}

/// (N - 1) / N * elements * size
std::size_t share(std::int64_t elements, Dtype dtype) {
  auto const n = static_cast<std::size_t>(session().info().world_size);
  return (n - 1) * static_cast<std::size_t>(elements) / n * size_of(dtype);
}

struct Case {
  Dtype dtype;
  int accumulation_steps;
  std::int64_t bucket;
};

class Traffics : public ::testing::TestWithParam<Case> {
 protected:
  zero::EngineConfig config(int stage) const {
    auto c = config_of(stage, GetParam().dtype);
    c.accumulation_steps = GetParam().accumulation_steps;
    c.reduce_bucket_size = c.allgather_bucket_size = GetParam().bucket;
    return c;
  }
  std::size_t micro_steps() const {
    return static_cast<std::size_t>(GetParam().accumulation_steps);
  }
  std::size_t once() const { return share(parameters, GetParam().dtype); }
};

TEST_P(Traffics, Stage0AllReducesOncePerStep) {
  auto const t = measure(config(0));
  EXPECT_EQ(t.all_reduce, 2 * once());
  EXPECT_EQ(t.reduce_scatter + t.all_gather, 0u);
  EXPECT_EQ(t.statistics, 1u);
}

TEST_P(Traffics, Stage1ReduceScattersAndGathersOncePerStep) {
  auto const t = measure(config(1));
  EXPECT_EQ(t.reduce_scatter, once());
  EXPECT_EQ(t.all_gather, once());
  EXPECT_EQ(t.all_reduce, 0u);
  EXPECT_EQ(t.statistics, 1u);
}

TEST_P(Traffics, Stage2ReduceScattersInEveryMicroStep) {
  auto const t = measure(config(2));
  EXPECT_EQ(t.reduce_scatter, micro_steps() * once());
  EXPECT_EQ(t.all_gather, once());
}

TEST_P(Traffics, Stages2And3ReduceScatterOncePerStepOnRequest) {
  for (int const stage : {2, 3}) {
    auto c = config(stage);
    auto const each = measure(c);
    set_reduce_once(c);
    auto const t = measure(c);
    EXPECT_EQ(t.reduce_scatter, once()) << "stage " << stage;
    EXPECT_EQ(t.all_gather, each.all_gather);
    EXPECT_EQ(t.all_reduce, 0u);
  }
}

TEST_P(Traffics, Stage3GathersForEveryAcquisitionWithoutPrefetch) {
  auto c = config(3);
  set_prefetch(c, 0);
  auto const t = measure(c);
  EXPECT_EQ(t.reduce_scatter, micro_steps() * once());
  // embedding: forward, tied head, backward; blocks: forward and backward; head: kept from forward
  // to backward
  EXPECT_EQ(t.all_gather,
            micro_steps() * share(3 * embedding + 2 * blocks * block + head, GetParam().dtype));
}

TEST_P(Traffics, Stage3GathersOnceWhereThePrefetchBucketHoldsTheModel) {
  auto const t = measure(config(3));
  EXPECT_EQ(t.reduce_scatter, micro_steps() * once());
  EXPECT_EQ(t.all_gather, micro_steps() * once());
}

INSTANTIATE_TEST_SUITE_P(
    All, Traffics,
    ::testing::Values(Case{Dtype::fp32, 1, 500'000'000}, Case{Dtype::fp32, 2, 500'000'000},
                      Case{Dtype::bf16, 1, 500'000'000}, Case{Dtype::bf16, 1, 256}),
    [](auto const& info) {
      return concat(name_of(info.param.dtype), "_micro_steps_", info.param.accumulation_steps,
                    "_bucket_", info.param.bucket);
    });

TEST(Traffic, BucketsBoundEveryOperation) {
  for (int stage = 0; stage <= 3; ++stage) {
    auto config = config_of(stage);
    config.reduce_bucket_size = 256;
    config.allgather_bucket_size = 128;
    Training training(config, QuadraticModel(blocks, true));
    training.step(1e-2);
    for (auto const& r : training.recording->records())
      EXPECT_LE(r.numel, r.operation == "all_gather" ? 128 : 256)
          << r.operation << ", stage " << stage;
  }
}

TEST(Traffic, GradientsTravelInTheCommunicationDtype) {
  for (int stage = 0; stage <= 3; ++stage) {
    auto config = config_of(stage);
    config.communication_dtype = Dtype::bf16;
    auto const t = measure(config);
    std::size_t const half = share(parameters, Dtype::bf16);
    EXPECT_EQ(t.all_reduce + t.reduce_scatter, stage == 0 ? 2 * half : half) << "stage " << stage;
  }
}

/// The operations of two steps in the order of the calls, one per line.
std::string sequence_of(zero::EngineConfig const& config) {
  Training training(config, QuadraticModel(blocks, true));
  training.recording->clear();
  training.step(1e-2);
  training.step(1e-2);
  std::string out;
  for (auto const& r : training.recording->records())
    out += concat(r.operation, " ", r.numel, " ", name_of(r.dtype), "\n");
  return out;
}

/// Whether all ranks have the text of the root; the same answer on every rank.
bool same_on_every_rank(std::string const& text) {
  auto const comm = make_comm();
  return comm::agree(*comm, comm::broadcast_bytes(*comm, text, 0) == text);
}

/// Every rank makes equal calls in one order, so that no rank waits for another for ever.
TEST(Traffic, IsTheSameOnEveryRank) {
  for (int stage = 0; stage <= 3; ++stage)
    for (int const accumulation_steps : {1, 2})
      for (std::int64_t const bucket : {256, 500'000'000})
        for (std::int64_t const prefetch : {0, 700, 50'000'000})
          for (bool const overlap : {false, true}) {
            auto config = config_of(stage);
            config.accumulation_steps = accumulation_steps;
            config.reduce_bucket_size = config.allgather_bucket_size = bucket;
            set_prefetch(config, prefetch);
            config.overlap_comm = overlap;
            auto const sequence = sequence_of(config);
            EXPECT_GE(std::count(sequence.begin(), sequence.end(), '\n'), 2);
            EXPECT_TRUE(same_on_every_rank(sequence))
                << "stage " << stage << ", " << accumulation_steps << " micro-steps, buckets of "
                << bucket << ", prefetch " << prefetch << "\n"
                << sequence;
          }
}

TEST(Traffic, ADifferenceBetweenRanksIsSeen) {
  bool const only = session().info().world_size == 1, root = session().info().rank == 0;
  EXPECT_EQ(same_on_every_rank(root ? "all_reduce 8 fp32\nall_gather 8 fp32\n"
                                    : "all_gather 8 fp32\nall_reduce 8 fp32\n"),
            only);
}

}  // namespace
}  // namespace tessera::test
