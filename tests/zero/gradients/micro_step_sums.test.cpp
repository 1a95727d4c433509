/// One training on 1, 2, 4 and 8 ranks, at every stage: the same bits of weights, states and norms.
#include "gradients/micro_step_sums.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "engine_fixture.hpp"
#include "engine_settings.hpp"
#include "tessera/comm/compose/two_level.hpp"
#include "tessera/core/random.hpp"

namespace tessera::test {
namespace {

constexpr int micro_batches = 8;

/// Everything that a training computes.
struct Trajectory {
  std::vector<double> norms;
  std::vector<float> values;
  bool operator==(Trajectory const&) const = default;
};

zero::EngineConfig config_of(int stage, Dtype dtype, int micro_steps) {
  zero::EngineConfig config;
  config.partition = zero::partition_of(stage);
  config.dtype = dtype;
  config.accumulation_steps = micro_steps;
  config.max_grad_norm = 0.5;
  config.sum_order = zero::SumOrder::tree;
  return config;
}

/// The leaf of the tree that a rank computes in a micro-step.
int leaf(zero::EngineConfig const& config, int micro_step, comm::Collectives const& comm,
         int micro_steps) {
  return reduces_micro_steps(config) ? micro_step * comm.size() + comm.rank()
                                     : comm.rank() * micro_steps + micro_step;
}

/// @p counted of the last step have samples; the values of this rank's shards are gathered
Trajectory train(zero::EngineConfig const& config, comm::Collectives& comm, int counted) {
  QuadraticModel model(3);
  auto const compute = memory::make_inline_queue("compute");
  auto const engine = zero::make_engine(config, model.units(), comm, *compute);
  engine->initialize([](UnitIndex u, int p, std::int64_t first, std::int64_t numel, float* out) {
    for (std::int64_t i = 0; i < numel; ++i) out[i] = QuadraticModel::initial(u, p, first + i);
  });
  Trajectory out;
  for (int step = 0; step < 3; ++step) {
    int const used = step == 2 ? counted : micro_batches;
    int const each = static_cast<int>(
        std::bit_ceil(static_cast<unsigned>((used + comm.size() - 1) / comm.size())));
    int const most =
        reduces_micro_steps(config) ? (used + comm.size() - 1) / comm.size() : std::min(each, used);
    engine->begin_step();
    for (int k = 0; k < most; ++k) {
      int const at = leaf(config, k, comm, each);
      if (at < used)
        engine->begin_micro_step(k, most);
      else
        engine->begin_micro_step(k, most, zero::MicroStepGradients::are_discarded);
      model.train(at < used ? at : 0, 1, engine->gradient_scale() / used, *engine, *compute);
    }
    out.norms.push_back(engine->finish_step(1e-2).grad_norm);
  }
  auto const states = engine->state();
  for (auto const& state : states) {
    std::vector<float> of_state(static_cast<std::size_t>(engine->plan().parameter_count()));
    std::int64_t begin = 0;
    std::vector<std::vector<std::int64_t>> begins;
    for (auto const& unit : engine->plan().units()) {
      begins.emplace_back();
      for (auto const& p : unit.parameters)
        begins.back().push_back(std::exchange(begin, begin + p.numel));
    }
    for (auto const& part : engine->plan().extents(Rank(comm.rank()))) {
      auto const& layout = engine->plan().unit(part.unit);
      float const* const from = state.unit_shards[position(part.unit)] +
                                layout.shard_offset(part.partition_offset).value();
      std::copy_n(from, part.numel,
                  of_state.begin() +
                      begins[position(part.unit)][static_cast<std::size_t>(part.parameter)] +
                      part.parameter_offset.value());
    }
    memory::TensorView const view(of_state.data(), Dtype::fp32,
                                  {static_cast<std::int64_t>(of_state.size())});
    comm.wait(comm.all_reduce(view, comm::ReduceOp::sum, {}));
    out.values.insert(out.values.end(), of_state.begin(), of_state.end());
  }
  return out;
}

class TreeOfSums : public ::testing::TestWithParam<Dtype> {};

TEST_P(TreeOfSums, HasTheSameBitsOnAnyPowerOfTwoOfRanksAtEveryStage) {
  auto const world = make_comm();
  for (int const counted : {8, 5, 1}) {
    auto const alone = comm::make_loopback();
    auto const expected = train(config_of(0, GetParam(), micro_batches), *alone, counted);
    for (int ranks = 1; ranks <= world->size(); ranks *= 2) {
      auto const group =
          world->split({world->rank() / ranks, world->rank(), ranks, concat("of ", ranks)});
      for (int stage = 0; stage <= 3; ++stage)
        for (bool const reduce_once : {false, true}) {
          auto config = config_of(stage, GetParam(), micro_batches / ranks);
          if (reduce_once) set_reduce_once(config);
          EXPECT_EQ(train(config, *group, counted), expected)
              << ranks << " ranks, stage " << stage << ", " << counted << " micro-batches"
              << (reduce_once ? ", reduced once" : "");
        }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Dtypes, TreeOfSums, ::testing::Values(Dtype::fp32, Dtype::bf16),
                         [](auto const& info) { return std::string(name_of(info.param)); });

/// Gradients of several tiles, of 1 to 16 micro-steps: the sum of a binary counter, whose upper
/// sums are added when a micro-step completes them.
TEST(MicroStepSums, FormTheSumsOfABinaryCounter) {
  constexpr std::int64_t numel = 100'003;
  auto const queue = memory::make_inline_queue("compute");
  auto const gradient = [](int step, std::int64_t i) {
    return Philox{5, static_cast<std::uint64_t>(step)}.uniform(static_cast<std::uint64_t>(i)) -
           0.5f;
  };
  auto config = config_of(0, Dtype::fp32, 16);
  for (int steps = 1; steps <= 16; ++steps) {
    zero::detail::MicroStepSums sums(config);
    std::vector<std::vector<float>> places(static_cast<std::size_t>(sums.copies()),
                                           std::vector<float>(numel));
    auto const at = [&](int place) {
      return memory::TensorView(places.at(static_cast<std::size_t>(place)).data(), Dtype::fp32,
                                {numel});
    };
    for (int step = 0; step < steps; ++step) {
      std::vector<float> own;
      for (std::int64_t i = 0; i < numel; ++i) own.push_back(gradient(step, i));
      sums.begin({.first = step == 0, .last = step + 1 == steps, .index = step});
      memory::TensorView const view(own.data(), Dtype::fp32, {numel});
      if (sums.adds()) {
        sums.merge(*queue, view, at);
      } else {
        std::ranges::copy(own, places.at(static_cast<std::size_t>(sums.copy_index())).begin());
        sums.merge(*queue, at);
      }
    }
    for (std::int64_t i = 0; i < numel; i += 997) {
      std::vector<std::pair<int, float>> counter;  // micro-steps of a sum, and the sum
      for (int step = 0; step < steps; ++step) {
        counter.emplace_back(1, gradient(step, i));
        while (counter.size() > 1 &&
               (counter.back().first == counter[counter.size() - 2].first || step + 1 == steps)) {
          auto const last = counter.back();
          counter.pop_back();
          counter.back() = {counter.back().first + last.first, counter.back().second + last.second};
        }
      }
      ASSERT_EQ(places[0][static_cast<std::size_t>(i)], counter[0].second)
          << steps << " micro-steps, element " << i;
    }
  }
}

TEST(TreeOfSums, OtherOrdersHaveOtherBits) {
  auto const alone = comm::make_loopback();
  auto plain = config_of(0, Dtype::fp32, micro_batches);
  auto const tree = train(plain, *alone, micro_batches);
  plain.sum_order = zero::SumOrder::ranks;
  EXPECT_NE(train(plain, *alone, micro_batches).values, tree.values);
}

TEST(TreeOfSums, RefusesWhatDependsOnTheRanks) {
  auto const comm = comm::make_loopback();
  auto const refused = [&](auto const& change) {
    auto config = config_of(3, Dtype::fp32, 4);
    change(config);
    EXPECT_THROW(train(config, *comm, micro_batches), InternalError);
  };
  refused([](auto& c) { c.accumulation_steps = 3; });
  refused([](auto& c) { c.communication_dtype = Dtype::bf16; });
  refused([](auto& c) { c.optimizer = optim::make_spec("Lamb"); });
  refused([](auto& c) { states_of(c).shard_group_size = 2; });
  refused([](auto& c) {
    c.reduction.average = zero::GradientAverage::sum;
    c.partition = zero::partition_of(0);
  });
}

TEST(MicroStepSums, KeepsAsManyPartialSumsAsItSays) {
  for (int const steps : {1, 2, 4, 8, 64}) {
    auto const config = config_of(2, Dtype::fp32, steps);
    zero::detail::MicroStepSums sums(config);
    EXPECT_EQ(sums.copies(), std::max(1, std::countr_zero(static_cast<unsigned>(steps))));
    for (int k = 0; k < steps; ++k) {
      sums.begin({k == 0, k + 1 == steps, k});
      EXPECT_LT(sums.copy_index(), sums.copies()) << k << " of " << steps;
    }
  }
}

}  // namespace
}  // namespace tessera::test
