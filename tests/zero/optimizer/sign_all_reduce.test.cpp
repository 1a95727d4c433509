/// The compressed all-reduce against a serial double-precision reference, over several steps with
/// error feedback.
#include "optimizer/sign_all_reduce.hpp"

#include <cmath>

#include "engine_fixture.hpp"

namespace tessera::zero::detail {
namespace {

using namespace tessera::test;
using Scales = optim::Compression::Scales;

int world() { return session().info().world_size; }

struct Parts {
  Parts()
      : recording(comm::make_recording(make_comm())),
        plan({{"unit", {{"w", {7, 5}, {}, true, {}}, {"b", {129}, {}, true, {}}}}},
             recording->size()),
        context{config, plan, {&plan, Rank(recording->rank()), true}, *recording, *compute} {}
  UnitLayout const& unit() const { return plan.unit(first_unit); }

  EngineConfig config = config_of(0);
  std::unique_ptr<memory::Queue> compute = memory::make_inline_queue("compute");
  std::unique_ptr<comm::RecordingCollectives> recording;
  PartitionPlan plan;
  StoreContext context;
};

float value_of(int rank, int step, std::int64_t i) {
  return 2.0f * Philox{17, static_cast<std::uint64_t>(rank + 100 * step)}.uniform(
                    static_cast<std::uint64_t>(i)) -
         1.0f;
}

/// All ranks in one place: what each element's errors and results are.
struct Reference {
  using Doubles = std::vector<double>;
  UnitLayout const& unit;
  Scales scales;
  int ranks;
  std::vector<Doubles> workers;
  Doubles servers, result;

  Reference(UnitLayout const& layout, Scales kind, int count)
      : unit(layout),
        scales(kind),
        ranks(count),
        workers(static_cast<std::size_t>(count), Doubles(size())),
        servers(size()),
        result(size()) {}
  std::size_t size() const { return static_cast<std::size_t>(unit.padded_numel); }

  /// The scale that an element has, -1 for padding.
  int group(std::int64_t i) const {
    for (std::size_t p = 0; p < unit.parameters.size(); ++p)
      if (i >= unit.parameters[p].offset.value() && i < unit.parameters[p].end().value())
        return scales == Scales::per_unit ? 0 : static_cast<int>(p);
    return -1;
  }
  /// The signs of elements [begin, end) times their scales, which are subtracted.
  Doubles compressed(Doubles& values, std::int64_t begin, std::int64_t end) const {
    Doubles out(size()), squares(unit.parameters.size()), counts(squares.size());
    for (std::int64_t i = begin; i < end; ++i)
      if (int const g = group(i); g >= 0) {
        double const x = values[static_cast<std::size_t>(i)];
        squares[static_cast<std::size_t>(g)] += x * x;
        counts[static_cast<std::size_t>(g)] += 1.0;
      }
    for (std::int64_t i = begin; i < end; ++i)
      if (int const g = group(i); g >= 0) {
        auto const at = static_cast<std::size_t>(i), s = static_cast<std::size_t>(g);
        double const scale = std::sqrt(squares[s] / counts[s]);
        out[at] = values[at] >= 0.0 ? scale : -scale;
        values[at] -= out[at];
      }
    return out;
  }
  void step(int index) {
    for (int r = 0; r < ranks; ++r) {
      auto& x = workers[static_cast<std::size_t>(r)];
      for (std::int64_t i = 0; i < unit.padded_numel; ++i)
        if (group(i) >= 0) x[static_cast<std::size_t>(i)] += value_of(r, index, i);
      auto const sent = compressed(x, 0, unit.padded_numel);
      for (std::size_t i = 0; i < size(); ++i) servers[i] += sent[i] / ranks;
    }
    for (int r = 0; r < ranks; ++r) {
      auto const sent = compressed(servers, r * unit.shard_numel, (r + 1) * unit.shard_numel);
      for (std::int64_t i = r * unit.shard_numel; i < (r + 1) * unit.shard_numel; ++i)
        result[static_cast<std::size_t>(i)] = sent[static_cast<std::size_t>(i)];
    }
  }
};

void expect_near(float const* got, std::vector<double> const& want, std::int64_t begin,
                 std::int64_t count, char const* what) {
  for (std::int64_t i = 0; i < count; ++i)
    ASSERT_NEAR(got[i], want[static_cast<std::size_t>(begin + i)], 2e-6) << what << " " << i;
}

TEST(SignAllReduce, MatchesASerialReference) {
  for (auto const scales : {Scales::per_parameter, Scales::per_unit}) {
    Parts parts;
    auto const& unit = parts.unit();
    SignAllReduce exchange(parts.context, scales, memory::MemorySpace::host);
    Reference reference(unit, scales, world());
    std::vector<float> values(reference.size()), server(static_cast<std::size_t>(unit.shard_numel)),
        out(reference.size(), 5.0f);
    int const rank = parts.recording->rank();
    for (int step = 0; step < 4; ++step) {
      reference.step(step);
      for (std::int64_t i = 0; i < unit.padded_numel; ++i)
        if (reference.group(i) >= 0) values[static_cast<std::size_t>(i)] += value_of(rank, step, i);
      exchange.send(first_unit, values.data());
      exchange.reduce(first_unit, server.data());
      exchange.receive(first_unit, out.data());
      auto want = reference.result;
      for (std::int64_t i = 0; i < unit.padded_numel; ++i)
        if (reference.group(i) < 0) want[static_cast<std::size_t>(i)] = 5.0;  // padding stays
      expect_near(out.data(), want, 0, unit.padded_numel, "result");
      expect_near(values.data(), reference.workers[static_cast<std::size_t>(rank)], 0,
                  unit.padded_numel, "worker error");
      expect_near(server.data(), reference.servers, rank * unit.shard_numel, unit.shard_numel,
                  "server error");
    }
  }
}

/// A bit per element in each direction, and a scale per parameter and peer.
TEST(SignAllReduce, MovesOneSixteenthOfSixteenBitGradientsAndTheScales) {
  Parts parts;
  auto const& unit = parts.unit();
  SignAllReduce exchange(parts.context, Scales::per_parameter, memory::MemorySpace::host);
  std::vector<float> values(static_cast<std::size_t>(unit.padded_numel), 1.0f),
      server(static_cast<std::size_t>(unit.shard_numel));
  parts.recording->clear();
  exchange.send(first_unit, values.data());
  exchange.reduce(first_unit, server.data());
  exchange.receive(first_unit, values.data());
  auto const peers = static_cast<std::size_t>(world() - 1),
             all_reduce = 2 * peers * static_cast<std::size_t>(unit.shard_numel) * 2,
             scales = 2 * peers * unit.parameters.size() * sizeof(float);
  EXPECT_EQ(parts.recording->bytes_sent(), all_reduce / 16 + scales);
}

}  // namespace
}  // namespace tessera::zero::detail
