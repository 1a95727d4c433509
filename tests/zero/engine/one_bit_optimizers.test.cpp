/// The optimizers that exchange signs in the engine, against a serial reference in double
/// precision.
#include "engine_fixture.hpp"
#include "one_bit_reference.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::test {
namespace {

using zero::EngineConfig;

struct Algorithm {
  char const* name;
  std::vector<optim::Hyperparameter> values;
};

std::vector<Algorithm> algorithms() {
  return {{"OneBitAdam", {{"freeze_step", 4}, {"weight_decay", 0.1}}},
          {"OneBitLamb",
           {{"freeze_step", 4}, {"weight_decay", 0.1}, {"coeff_beta", 0.6}, {"max_coeff", 3.0}}}};
}

EngineConfig config(Algorithm const& algorithm, Dtype dtype = Dtype::fp32) {
  auto c = config_of(0, dtype);
  auto values = algorithm.values;
  values.push_back({"beta2", 0.95});
  c.optimizer = optim::make_spec(algorithm.name, values);
  return c;
}

double rate_of(int step) { return 5e-3 / (1.0 + 0.1 * step); }

OneBitReference reference_of(EngineConfig const& c, int ranks) {
  int const share = global_samples / ranks;
  return {c, zero::PartitionPlan(QuadraticModel(3).units(), ranks), QuadraticModel::initial,
          [=](int rank, UnitIndex u, int p, std::int64_t i, double w) {
            return ranks * QuadraticModel::gradient(u, p, i, rank * share, share, w) /
                   global_samples;
          }};
}
OneBitReference reference_of(Training const& training) {
  return reference_of(training.engine->config(), training.ranks());
}

std::size_t number_of(std::vector<zero::StateView> const& states, std::string const& name) {
  for (std::size_t k = 0; k < states.size(); ++k)
    if (states[k].name == name) return k;
  return states.size();
}

/// The largest difference of a state, relative to the largest value.
template <class Trained>
double difference(Trained& training, std::vector<zero::StateView> const& states,
                  std::string const& name, OneBitReference const& reference,
                  OneBitReference::Doubles const& want) {
  std::size_t const k = number_of(states, name);
  if (k == states.size()) return 0.0;
  double largest = 1e-30, worst = 0.0;
  for (auto const& place : reference.places()) {
    auto const& unit = training.engine->plan().unit(place.unit);
    auto const& slot = unit.parameters[static_cast<std::size_t>(place.parameter)];
    for (std::size_t e = place.begin; e < place.end; ++e) {
      largest = std::max(largest, std::abs(want[e]));
      std::int64_t const at =
          unit.shard_offset(Rank(training.rank()),
                            slot.offset + static_cast<std::int64_t>(e - place.begin))
              .value();
      if (at < 0 || at >= unit.shard_numel) continue;
      double const mine = states[k].unit_shards[position(place.unit)][at];
      worst = std::isnan(mine) ? INFINITY : std::max(worst, std::abs(mine - want[e]));
    }
  }
  return worst / largest;
}

template <class Trained>
double scalar_difference(Trained& training, std::vector<zero::StateView> const& states,
                         std::string const& name, OneBitReference const& reference,
                         OneBitReference::Doubles const& want) {
  std::size_t const k = number_of(states, name);
  if (k == states.size()) return 0.0;
  auto const reduced = training.engine->plan().of_extent(optim::Extent::scalar);
  double worst = 0.0;
  for (auto const& part : reduced.extents(Rank(training.rank())))
    for (std::size_t p = 0; p < want.size(); ++p) {
      auto const& place = reference.places()[p];
      if (place.unit != part.unit || place.parameter != part.parameter) continue;
      auto const at = reduced.unit(part.unit).shard_offset(part.partition_offset).value();
      double const mine = states[k].unit_shards[position(part.unit)][at];
      worst = std::max(worst, std::abs(mine / want[p] - 1.0));
    }
  return worst;
}

template <class Trained>
void expect_states(Trained& training, OneBitReference& reference, std::string const& what) {
  auto const states = training.engine->state();
  reference.average_errors();
  auto const& own = reference.rank(training.rank());
  auto const check = [&](char const* name, OneBitReference::Doubles const& want) {
    EXPECT_LT(difference(training, states, name, reference, want), 2e-4) << what << ": " << name;
  };
  check("fp32", own.weight);
  check("exp_avg", own.m);
  check("exp_avg_sq", reference.v);
  check("exp_avg_sq_fresh", reference.fresh);
  check("worker_error", own.error);
  check("server_error", reference.server);
  auto const check_scalar = [&](char const* name, OneBitReference::Doubles const& want) {
    EXPECT_LT(scalar_difference(training, states, name, reference, want), 1e-5)
        << what << ": " << name;
  };
  check_scalar("lamb_coeff_freeze", reference.coefficient);
  check_scalar("last_factor", reference.factor);
  check_scalar("scaling_coeff", reference.scaling);
}

/// Updates equal the reference after checkpoints, too.
TEST(OneBitOptimizers, EqualASerialReference) {
  for (auto const& algorithm : algorithms())
    for (std::vector<int> const& checkpoints :
         {std::vector<int>{8, 13}, std::vector<int>{17, 22, 26}}) {
      Training training(config(algorithm));
      auto reference = reference_of(training);
      for (int t = 1; t <= checkpoints.back(); ++t) {
        EXPECT_FALSE(training.step(rate_of(t)).skipped);
        reference.step(rate_of(t));
        if (std::count(checkpoints.begin(), checkpoints.end(), t) == 0) continue;
        expect_states(
            training, reference,
            concat(algorithm.name, " at step ", t, ", closest sign ", reference.closest_sign));
      }
    }
}

TEST(OneBitOptimizers, NameThePhases) {
  auto const phases = [](Algorithm const& algorithm) {
    Training training(config(algorithm));
    std::vector<std::string> out;
    for (int t = 1; t <= 16; ++t) {
      std::string const phase = training.step(rate_of(t)).phase;
      if (out.empty() || out.back() != phase) out.push_back(phase);
    }
    return out;
  };
  EXPECT_EQ(phases(algorithms()[0]), (std::vector<std::string>{"warm-up", "compressed"}));
  EXPECT_EQ(phases(algorithms()[1]), (std::vector<std::string>{"warm-up", "compressed"}));
}

/// A step that exchanges moves a bit per element in each direction, the scales and the norm.
TEST(OneBitOptimizers, MoveOneSixteenthOfSixteenBitGradients) {
  for (auto const& algorithm : algorithms()) {
    Training training(config(algorithm));
    int const last = 22;
    for (int t = 1; t < last; ++t) training.step(rate_of(t));
    auto const& plan = training.engine->plan();
    std::int64_t padded = 0, scales = 0;
    for (auto const& unit : plan.units()) {
      padded += unit.padded_numel;
      scales += std::string(algorithm.name) == "OneBitLamb"
                    ? 1
                    : static_cast<std::int64_t>(unit.parameters.size());
    }
    std::int64_t const peers = training.ranks() - 1,
                       all_reduce = 2 * peers * padded / training.ranks() * 2;
    training.recording->clear();
    training.step(rate_of(last));
    auto const sent = static_cast<std::int64_t>(training.recording->bytes_sent());
    std::int64_t norm = 0;
    for (auto const& r : training.recording->records())
      if (r.operation == "all_reduce") {
        EXPECT_EQ(r.dtype, Dtype::fp64);
        ++norm;
      }
    EXPECT_GT(norm, 0);
    std::int64_t const signs = all_reduce / 16 + 2 * peers * scales * 4;
    EXPECT_GE(sent, signs) << algorithm.name;
    EXPECT_LT(sent - signs, 1000) << algorithm.name;  // the norm
  }
}

/// A run that is loaded from the states continues as the run that has shown them.
TEST(OneBitOptimizers, ContinueBitByBitFromTheirStates) {
  for (auto const& algorithm : algorithms())
    for (int const at : {8, 22}) {
      Training first(config(algorithm, Dtype::bf16)), second(config(algorithm, Dtype::bf16));
      for (int t = 1; t <= at; ++t) first.step(rate_of(t));
      auto const from = first.engine->state(), to = second.engine->state();
      for (std::size_t k = 0; k < from.size(); ++k) {
        auto const plan = first.engine->plan().of_extent(from[k].extent);
        for (std::size_t u = 0; u < from[k].unit_shards.size(); ++u)
          std::copy_n(from[k].unit_shards[u], plan.units()[u].shard_numel, to[k].unit_shards[u]);
      }
      second.engine->load_state(first.engine->optimizer_steps(), first.engine->scaler_state());
      for (int t = at + 1; t <= at + 3; ++t) {
        first.step(rate_of(t));
        second.step(rate_of(t));
      }
      auto const a = first.engine->state(), b = second.engine->state();
      for (std::size_t k = 0; k < a.size(); ++k) {
        auto const plan = first.engine->plan().of_extent(a[k].extent);
        for (std::size_t u = 0; u < a[k].unit_shards.size(); ++u)
          for (std::int64_t i = 0; i < plan.units()[u].shard_numel; ++i)
            ASSERT_EQ(a[k].unit_shards[u][i], b[k].unit_shards[u][i])
                << algorithm.name << " from step " << at << ": " << a[k].name << " " << i;
      }
    }
}

/// A training on the first ranks of the job; the other ranks have none.
struct GroupTraining {
  GroupTraining(EngineConfig const& c, comm::Collectives& world, int ranks)
      : comm(world.split({world.rank() < ranks ? 0 : -1, world.rank(), ranks, "first ranks"})) {
    if (!comm) return;
    engine = zero::make_engine(c, model.units(), *comm, *compute);
    engine->initialize([](UnitIndex u, int p, std::int64_t first, std::int64_t numel, float* out) {
      for (std::int64_t i = 0; i < numel; ++i) out[i] = QuadraticModel::initial(u, p, first + i);
    });
  }
  void step(int t) {
    if (!engine) return;
    int const share = global_samples / comm->size();
    engine->begin_step();
    engine->begin_micro_step(0, 1);
    model.train(comm->rank() * share, share, engine->gradient_scale() / global_samples, *engine,
                *compute);
    engine->finish_step(rate_of(t));
  }
  /// Calls @p visit(number, place, value) for this rank's values of each state of a checkpoint,
  /// with their places on one rank.
  template <class Visit>
  void visit_states(Visit const& visit) {
    if (!engine) return;
    zero::PartitionPlan const on_one(model.units(), 1);
    std::size_t number = 0;
    for (auto const& state : engine->state()) {
      auto const plan = engine->plan().of_extent(state.extent),
                 one = on_one.of_extent(state.extent);
      for (auto const& e : plan.extents(Rank(comm->rank())))
        for (std::int64_t i = 0; i < e.numel; ++i) {
          auto const& unit = one.unit(e.unit);
          auto const& parameter = unit.parameters[static_cast<std::size_t>(e.parameter)];
          auto const place = unit.partition_offset.value() + parameter.offset.value() +
                             e.parameter_offset.value() + i;
          auto const in_shard = plan.unit(e.unit).shard_offset(e.partition_offset + i).value();
          visit(number, static_cast<std::size_t>(place),
                state.unit_shards[position(e.unit)][in_shard]);
        }
      ++number;
    }
  }
  /// Values of all states, on all ranks of the job
  using Saved = std::vector<std::vector<double>>;
  Saved save(comm::Collectives& world, std::size_t states) {
    Saved out(states, std::vector<double>(4096));
    visit_states([&](std::size_t k, std::size_t at, float value) { out[k].at(at) = value; });
    for (auto& values : out) comm::all_reduce_values(world, values, comm::ReduceOp::sum);
    return out;
  }
  void load(Saved const& saved, std::int64_t steps) {
    visit_states([&](std::size_t k, std::size_t at, float& value) {
      value = static_cast<float>(saved[k].at(at));
    });
    if (engine) engine->load_state(steps, {});
  }

  int rank() const { return comm->rank(); }

  QuadraticModel model{3};
  std::unique_ptr<comm::Collectives> comm;
  std::unique_ptr<memory::Queue> compute = memory::make_inline_queue("compute");
  std::unique_ptr<zero::Engine> engine;
};

/// On another number of ranks every state is the same element for element, and the next steps are
/// those of a reference whose ranks all start with the mean of the worker errors.
TEST(OneBitOptimizers, KeepTheirStatesOnAnyNumberOfRanks) {
  auto const world = make_comm();
  for (auto const& algorithm : algorithms())
    for (auto const& [from, to] : {std::pair{1, 2}, {2, 1}, {2, 4}, {4, 2}, {8, 2}}) {
      if (std::max(from, to) > world->size()) continue;
      auto const c = config(algorithm);
      std::size_t const states = c.optimizer.states.size() + 1;
      GroupTraining first(c, *world, from), second(c, *world, to);
      auto before = reference_of(c, from), after = reference_of(c, to);
      int const at = 22;
      for (int t = 1; t <= at; ++t) first.step(t), before.step(rate_of(t));
      auto const saved = first.save(*world, states);
      second.load(saved, at);
      auto const what = concat(algorithm.name, ", ", from, " to ", to, " ranks");
      EXPECT_EQ(second.save(*world, states), saved) << what;
      before.average_errors();
      after.continue_from(before);
      for (int t = at + 1; t <= at + 3; ++t) second.step(t), after.step(rate_of(t));
      if (second.engine) expect_states(second, after, what);
    }
}

/// An overflow on one rank leaves all ranks as they were.
TEST(OneBitOptimizers, SkippedStepsChangeNothing) {
  for (auto const& algorithm : algorithms()) {
    Training first(config(algorithm)), second(config(algorithm));
    for (int t = 1; t <= 26; ++t) {
      EXPECT_FALSE(first.step(rate_of(t)).skipped);
      EXPECT_FALSE(second.step(rate_of(t)).skipped);
      if (t != 8 && t != 14 && t != 22) continue;
      if (second.rank() == 0)
        second.model.spoil = [](UnitIndex, int, std::int64_t, float) { return INFINITY; };
      EXPECT_TRUE(second.step(rate_of(t)).skipped);
      second.model.spoil = {};
    }
    auto const a = first.engine->state(), b = second.engine->state();
    for (std::size_t k = 0; k < a.size(); ++k) {
      auto const plan = first.engine->plan().of_extent(a[k].extent);
      for (std::size_t u = 0; u < a[k].unit_shards.size(); ++u)
        for (std::int64_t i = 0; i < plan.units()[u].shard_numel; ++i)
          ASSERT_EQ(a[k].unit_shards[u][i], b[k].unit_shards[u][i])
              << algorithm.name << ": " << a[k].name << " " << i;
    }
  }
}

/// What other units have exchanged does not get into it.
TEST(OneBitOptimizers, KeepPaddingZero) {
  for (auto const& algorithm : algorithms()) {
    Training training(config(algorithm));
    for (int t = 1; t <= 20; ++t) training.step(rate_of(t));
    auto const& plan = training.engine->plan();
    std::int64_t padding = 0;
    for (auto const& state : training.engine->state()) {
      if (state.extent != optim::Extent::elementwise) continue;
      for (std::size_t u = 0; u < state.unit_shards.size(); ++u) {
        auto const& unit = plan.units()[u];
        std::vector<float> rest(state.unit_shards[u], state.unit_shards[u] + unit.shard_numel);
        auto const begin = training.rank() * unit.shard_numel;
        for (auto const& p : unit.parameters)
          for (auto i = p.offset.value(); i < p.end().value(); ++i)
            if (i >= begin && i < begin + unit.shard_numel)
              rest[static_cast<std::size_t>(i - begin)] = 0.0f;
        EXPECT_EQ(rest, std::vector<float>(rest.size())) << algorithm.name << ": " << state.name;
        padding += unit.padded_numel;
        for (auto const& p : unit.parameters) padding -= p.end() - p.offset;
      }
    }
    EXPECT_GT(padding, 0);
  }
}

/// tests/oracles/one_bit.py has the same.
double number(std::vector<std::int64_t> const& indices) {
  std::int64_t x = 1;
  for (std::int64_t const i : indices) {
    x = (x * 48271 + (i + 1) * 69621) % 2147483647;
    x = x * x % 2147483647;
  }
  return static_cast<double>(x % 65521) / 32760.5 - 1.0;
}

/// Parameters with given gradients. DeepSpeed compresses each parameter by itself, but all of
/// OneBitLamb's together: a unit is what is compressed together.
struct GivenGradients {
  GivenGradients(EngineConfig const& c, std::vector<std::int64_t> const& sizes, bool is_together)
      : together(is_together) {
    for (std::int64_t const n : sizes) {
      if (units.empty() || !together) units.push_back({concat("unit", units.size()), {}});
      units.back().parameters.push_back({concat("p", n), {n}, {}, true, {}});
    }
    engine = zero::make_engine(c, units, *comm, *compute);
    engine->initialize([&](UnitIndex u, int p, std::int64_t first, std::int64_t count, float* out) {
      for (std::int64_t i = 0; i < count; ++i)
        out[i] = static_cast<float>(number({7, parameter(u, p), first + i}));
    });
  }
  int parameter(UnitIndex u, int p) const { return together ? p : static_cast<int>(position(u)); }
  template <class Visit>
  void for_units(memory::Pass pass, Visit const& visit) {
    std::vector<UnitIndex> order;
    for (auto u = first_unit; position(u) < units.size(); ++u) order.push_back(u);
    engine->begin_pass(pass, order);
    for (auto const u : order) visit(u, engine->acquire(u, *compute));
  }
  void step(int t, double rate) {
    engine->begin_step();
    engine->begin_micro_step(0, 1);
    for_units(memory::Pass::training, [&](UnitIndex u, memory::WeightLease const&) {
      auto const out = engine->gradient(u, *compute);
      for (std::size_t p = 0; p < units[position(u)].parameters.size(); ++p)
        for (std::int64_t i = 0; i < out[p].numel(); ++i) {
          auto const at = parameter(u, static_cast<int>(p));
          double const own = number({t, comm->rank(), at, i}) + 0.5 * number({3, at, i});
          store(out[p], i, static_cast<float>(own) / static_cast<float>(comm->size()));
        }
      engine->gradient_complete(u, *compute);
    });
    EXPECT_FALSE(engine->finish_step(rate).skipped);
  }

  bool together;
  std::vector<memory::UnitSpec> units;
  std::unique_ptr<comm::Collectives> comm = make_comm();
  std::unique_ptr<memory::Queue> compute = memory::make_inline_queue("compute");
  std::unique_ptr<zero::Engine> engine;
};

void expect_deepspeeds_weights(ConfigTree const& stored) {
  std::string const algorithm = stored.at("algorithm").as_string();
  auto const& betas = stored.at("betas").as_array();
  std::vector<optim::Hyperparameter> values{
      {"beta1", betas[0].as_double()},
      {"beta2", betas[1].as_double()},
      {"weight_decay", stored.at("weight_decay").as_double()}};
  for (auto const& rule : optim::optimizer_info(algorithm).hyperparameters)
    if (auto const* value = stored.at("params").find(rule.name))
      values.push_back({rule.name, value->as_double()});
  auto c = config_of(0);
  c.optimizer = optim::make_spec(algorithm, values, optim::one_group());
  std::vector<std::int64_t> sizes;
  for (auto const& n : stored.at("sizes").as_array()) sizes.push_back(n.as_int());
  GivenGradients training(c, sizes, algorithm == "OneBitLamb");
  int t = 0;
  for (auto const& shown : stored.at("shown").as_array()) {
    while (t < shown.at("step").as_int()) training.step(++t, stored.at("lr").as_double());
    training.for_units(memory::Pass::evaluation, [&](UnitIndex u, auto const& weights) {
      for (std::size_t p = 0; p < weights.size(); ++p) {
        auto const at = static_cast<std::size_t>(training.parameter(u, static_cast<int>(p)));
        auto const& want = shown.at("weights").as_array()[at].as_array();
        for (std::int64_t i = 0; i < weights[p].numel(); ++i)
          EXPECT_NEAR(load(weights[p], i), want[static_cast<std::size_t>(i)].as_double(), 2e-6)
              << algorithm << " at step " << t << ", element " << i;
      }
    });
  }
}

/// The optimizers of DeepSpeed 0.14.5, with its own compressed all-reduce.
TEST(OneBitOptimizers, ReachTheWeightsOfDeepSpeed) {
  auto const oracle = ConfigTree::read(concat(TESSERA_TEST_DATA, "/oracles/one_bit.json"));
  for (auto const& stored : oracle.at("cases").as_array())
    if (stored.at("ranks").as_int() == session().info().world_size)
      expect_deepspeeds_weights(stored);
}

}  // namespace
}  // namespace tessera::test
