/// All pairs of modes that an engine allows, in configurations of a covering array: three steps of
/// each have the bits of stage 0 on one rank, or come as near as the documentation says.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "covering_array.hpp"
#include "engine_fixture.hpp"
#include "exact_model.hpp"
#include "fake_device.hpp"
#include "pairwise_modes.hpp"
#include "tessera/comm/compose/device_collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/memory/stream_queue.hpp"

namespace tessera::test {
namespace {

constexpr int batch_samples = 16, steps = 3;

/// A state of the model; none: the element is in another rank's shard.
struct StateValues {
  std::string name;
  std::vector<std::optional<float>> values;
};

struct Outcome {
  std::vector<double> losses, norms;
  std::vector<bool> skipped;
  std::vector<StateValues> states;  ///< master weights first
  ModelValues weights;              ///< as an evaluation sees them after the last step
};

/// Collectives, a queue and an engine in one memory space.
struct Run {
  Run(zero::EngineConfig const& config, ExactModel m, Space space,
      std::unique_ptr<comm::Collectives> host)
      : model(std::move(m)),
        comm(space == Space::host ? std::move(host)
                                  : comm::make_device(std::move(host), std::chrono::seconds(60),
                                                      comm::DeviceTransport::staged)),
        queue(space == Space::host ? memory::make_inline_queue("compute")
                                   : memory::make_stream_queue("compute")),
        engine(zero::make_engine(config, model.units(), *comm, *queue)) {}

  void initialize() {
    engine->initialize([](UnitIndex u, int p, std::int64_t first, std::int64_t numel, float* out) {
      for (std::int64_t i = 0; i < numel; ++i) out[i] = ExactModel::initial(u, p, first + i);
    });
  }

  /// @param instead what the passes of this step take for the weights; null: the engine's
  void step(int number, Outcome& out, ModelValues const* instead = nullptr) {
    int const micro_steps = engine->config().accumulation_steps,
              share = batch_samples / micro_steps / comm->size();
    engine->begin_step();
    double loss = 0.0;
    for (int k = 0; k < micro_steps; ++k) {
      engine->begin_micro_step(k, micro_steps);
      int const begin = number * batch_samples + (k * comm->size() + comm->rank()) * share;
      loss += model.train(begin, share, engine->gradient_scale() / batch_samples, *engine, *queue,
                          instead);
    }
    zero::StepValues values;
    values.addends = {loss};
    auto const result = engine->finish_step(1e-2 / (1 + number), values);
    out.losses.push_back(result.sums.addends);
    out.norms.push_back(result.grad_norm);
    out.skipped.push_back(result.skipped);
  }

  void finish(Outcome& out) {
    auto const& plan = engine->plan();
    for (auto const& state : engine->state()) {
      auto const of_state = plan.of_extent(state.extent);
      std::vector<std::vector<std::int64_t>> begins;
      std::int64_t count = 0;
      for (auto const& unit : of_state.units()) {
        begins.emplace_back();
        for (auto const& p : unit.parameters)
          begins.back().push_back(std::exchange(count, count + p.numel));
      }
      StateValues values{state.name, {}};
      values.values.resize(static_cast<std::size_t>(count));
      for (auto const& part : of_state.extents(plan.rank_of(comm->rank()))) {
        float const* const from =
            state.unit_shards[position(part.unit)] +
            of_state.unit(part.unit).shard_offset(part.partition_offset).value();
        std::copy_n(from, part.numel,
                    values.values.begin() + part.parameter_offset.value() +
                        begins[position(part.unit)][static_cast<std::size_t>(part.parameter)]);
      }
      out.states.push_back(std::move(values));
    }
    out.weights = model.look(*engine, *queue);
  }

  ExactModel model;
  std::unique_ptr<comm::Collectives> comm;
  std::unique_ptr<memory::Queue> queue;
  std::unique_ptr<zero::Engine> engine;
};

/// Trains with the optimizer, dtypes and frozen parameters of @p m at stage 0 on one rank of the
/// host. Stage 0 refuses master weights of 16 bits: they are at stage 1, which is the same on one
/// rank (docs/explanation/zero.md, "Partition plan"). A delayed update is one that the passes of
/// the next step do not see.
Outcome stage_0(Modes const& m) {
  Modes plain{};
  plain.stage = has_half_masters(m) ? Stage::one : Stage::zero;
  plain.numbers = m.numbers;
  plain.algorithm = m.algorithm;
  Run run(config_of(plain, 1), model_of(m.frozen), Space::host, comm::make_loopback());
  run.initialize();
  Outcome out;
  std::vector<ModelValues> seen;
  for (int step = 0; step < steps; ++step) {
    seen.push_back(run.model.look(*run.engine, *run.queue));
    auto const delay = static_cast<std::size_t>(delays(m) && step > 0);
    run.step(step, out, &seen[static_cast<std::size_t>(step) - delay]);
  }
  run.finish(out);
  return out;
}

Outcome const& stage_0_once(Modes const& m) {
  static std::map<std::tuple<Numbers, Algorithm, Frozen, bool>, Outcome> known;
  std::tuple const key{m.numbers, m.algorithm, m.frozen, delays(m)};
  if (!known.contains(key)) known[key] = stage_0(m);
  return known[key];
}

Outcome train(Modes const& modes) {
  auto config = config_of(modes, session().info().world_size);
  config.hash_states = true;
  Run run(config, model_of(modes.frozen), modes.space,
          comm::make_mpi(session(), std::chrono::seconds(60)));
  run.initialize();
  Outcome out;
  for (int step = 0; step < steps; ++step) {
    run.step(step, out);
    if (step == 0) continue;
    EXPECT_EQ(run.engine->changed_states(), std::nullopt) << "only updates change states";
  }
  run.finish(out);
  EXPECT_EQ(run.engine->changed_states(), std::nullopt) << "nothing is delayed any more";
  return out;
}

/// Whether weights or gradients travel as codes. Of one rank they do not, apart from weights that
/// come from host memory or a drive.
struct Codes {
  bool weights, gradients;
  bool any() const { return weights || gradients; }
};
Codes codes_of(Modes const& m, int ranks) {
  bool const streams = m.weights == WeightsPlace::drive ||
                       (m.weights == WeightsPlace::host && m.space == Space::device);
  return {m.quantized_weights != WeightBits::none && (ranks > 1 || streams),
          m.quantized_gradients != GradientQuantization::none && ranks > 1};
}

/// Returns modes with the quantized gradients of @p m (equal chunks and micro-steps), and the first
/// levels of all factors that change no bit of them.
Modes plainest_with_codes_of(Modes const& m, int ranks) {
  Modes plain{};
  plain.quantized_weights = m.quantized_weights;
  plain.quantized_gradients = m.quantized_gradients;
  plain.groups = m.groups;
  plain.micro_steps = m.micro_steps;
  plain.numbers = m.numbers;
  plain.algorithm = m.algorithm;
  plain.frozen = m.frozen;
  if (ranks == 1) plain.weights = WeightsPlace::drive;
  if (delays(m)) {
    plain.space = Space::device;
    plain.states = StatesPlace::host;
    plain.update = HostUpdate::delayed;
  }
  return plain;
}

Outcome const& plainest_once(Modes const& m, int ranks) {
  static std::map<std::tuple<WeightBits, GradientQuantization, ShardGroups, MicroSteps, Numbers,
                             Algorithm, Frozen, bool>,
                  Outcome>
      known;
  std::tuple const key{m.quantized_weights, m.quantized_gradients, m.groups, m.micro_steps,
                       m.numbers,           m.algorithm,           m.frozen, delays(m)};
  if (!known.contains(key)) known[key] = train(plainest_with_codes_of(m, ranks));
  return known[key];
}

/// Why an engine refuses the modes; empty: it takes them.
std::string refusal(Configuration const& c) {
  auto const modes = modes_of(c);
  try {
    Run const run(config_of(modes, 2), model_of(modes.frozen), modes.space, comm::make_loopback());
    return {};
  } catch (InternalError const& e) {
    return e.what();
  }
}

CoveringArray const& configurations() {
  static CoveringArray const all = [] {
    FakeDevice::of_process();
    std::vector<int> levels;
    for (auto const& factor : factors()) levels.push_back(static_cast<int>(factor.levels.size()));
    return covering_array(levels, refusal, 60);
  }();
  return all;
}

struct Refusal {
  std::string first, second;
  char const* reason;  ///< a part of the message
};
constexpr char const *no_states = "cannot be expressed: stage 0 shards no states",
                     *no_weights = "cannot be expressed: the stage gathers no weights";
/// Pairs that no engine takes, whatever its other modes.
std::vector<Refusal> const refused{
    {"stage=0", "states=host", no_states},
    {"stage=0", "states=drive", no_states},
    {"stage=0", "ratio=part", no_states},
    {"stage=0", "update=delayed", no_states},
    {"stage=2", "weights=host", no_weights},
    {"stage=2", "weights=drive", no_weights},
    {"stage=1", "weights=host", no_weights},
    {"stage=1", "weights=drive", no_weights},
    {"stage=0", "weights=host", no_weights},
    {"stage=0", "weights=drive", no_weights},
    {"stage=2", "secondary=two", no_weights},
    {"stage=1", "secondary=two", no_weights},
    {"stage=0", "secondary=two", no_weights},
    {"stage=0", "groups=two", no_states},
    {"stage=2", "quantized_weights=8", no_weights},
    {"stage=2", "quantized_weights=4", no_weights},
    {"stage=1", "quantized_weights=8", no_weights},
    {"stage=1", "quantized_weights=4", no_weights},
    {"stage=0", "quantized_weights=8", no_weights},
    {"stage=0", "quantized_weights=4", no_weights},
    {"stage=2", "quantized_gradients=codes", no_weights},
    {"stage=2", "quantized_gradients=feedback", no_weights},
    {"stage=1", "quantized_gradients=codes", no_weights},
    {"stage=1", "quantized_gradients=feedback", no_weights},
    {"stage=0", "quantized_gradients=codes", no_weights},
    {"stage=0", "quantized_gradients=feedback", no_weights},
    {"stage=0", "numbers=bf16_masters", no_states},
    {"stage=0", "numbers=bf16_states", no_states},
    {"space=device", "order=tree", "NCCL and devices form sums in another order"},
    {"states=resident", "ratio=part", "cannot be expressed"},
    {"states=resident", "update=delayed", "cannot be expressed"},
    {"states=drive", "update=delayed", "the delayed update of states on a drive"},
    {"states=drive", "numbers=bf16_states", "states of 16 bits stay in memory"},
    {"ratio=part", "update=delayed", "the delayed update of a part of the elements"},
    {"ratio=part", "optimizer=AdamW8bit",
     "with AdamW8bit, whose states are not element-wise fp32 values"},
    {"ratio=part", "optimizer=Adafactor",
     "with Adafactor, whose states are not element-wise fp32 values"},
    {"secondary=two", "groups=two", "secondary shards with shard groups"},
    {"groups=two", "quantized_gradients=codes", "quantized gradients with shard groups"},
    {"groups=two", "quantized_gradients=feedback", "quantized gradients with shard groups"},
    {"groups=two", "order=tree", "shard groups sum in another order"},
    {"quantized_weights=8", "order=tree", "quantized collectives round by shard"},
    {"quantized_weights=4", "order=tree", "quantized collectives round by shard"},
    {"quantized_gradients=codes", "reductions=once",
     "quantized gradients that are reduced once per step"},
    {"quantized_gradients=feedback", "reductions=once",
     "quantized gradients that are reduced once per step"},
    {"quantized_gradients=codes", "order=tree", "quantized collectives round by shard"},
    {"quantized_gradients=feedback", "order=tree", "quantized collectives round by shard"},
    {"numbers=bf16_masters", "optimizer=AdamW8bit",
     "16-bit states or master weights with optimizer AdamW8bit"},
    {"numbers=bf16_masters", "optimizer=Lamb",
     "16-bit states or master weights with optimizer Lamb"},
    {"numbers=bf16_masters", "optimizer=Adafactor",
     "16-bit states or master weights with optimizer Adafactor"},
    {"numbers=bf16_masters", "optimizer=Muon",
     "16-bit states or master weights with optimizer Muon"},
    {"numbers=bf16_states", "optimizer=AdamW8bit",
     "16-bit states or master weights with optimizer AdamW8bit"},
    {"numbers=bf16_states", "optimizer=Lamb",
     "16-bit states or master weights with optimizer Lamb"},
    {"numbers=bf16_states", "optimizer=Adafactor",
     "16-bit states or master weights with optimizer Adafactor"},
    {"numbers=bf16_states", "optimizer=Muon",
     "16-bit states or master weights with optimizer Muon"},
    {"numbers=bf16_masters", "order=tree", "sums in a tree that are not fp32"},
    {"numbers=bf16_states", "order=tree", "sums in a tree that are not fp32"},
    {"optimizer=AdamW8bit", "order=tree", "sums in a tree with optimizer AdamW8bit"},
    {"optimizer=Lamb", "order=tree", "sums in a tree with optimizer Lamb"},
    {"optimizer=Adafactor", "order=tree", "sums in a tree with optimizer Adafactor"},
    {"optimizer=Muon", "order=tree", "sums in a tree with optimizer Muon"}};

TEST(Pairwise, RefusedPairsAreTheListedOnes) {
  std::map<std::pair<std::string, std::string>, char const*> listed;
  for (auto const& r : refused) listed[{r.first, r.second}] = r.reason;
  EXPECT_EQ(listed.size(), refused.size());
  for (auto const& found : configurations().refused) {
    std::pair const pair{name_of(found.first), name_of(found.second)};
    auto const expected = listed.extract(pair);
    ASSERT_FALSE(expected.empty())
        << pair.first << ", " << pair.second << " is refused: " << *found.reasons.begin();
    EXPECT_TRUE(std::ranges::any_of(found.reasons,
                                    [&](std::string const& reason) {
                                      return reason.find(expected.mapped()) != std::string::npos;
                                    }))
        << pair.first << ", " << pair.second << ": " << *found.reasons.begin();
  }
  for (auto const& [pair, reason] : listed)
    ADD_FAILURE() << pair.first << ", " << pair.second << " is taken, though: " << reason;
}

struct Distance {
  /// Worst and squares of differences, squares of the wanted values
  double worst = 0.0, squares = 0.0, size = 0.0;
  void add(double got, double wanted) {
    double const apart = std::abs(got - wanted);
    worst = apart <= worst ? worst : apart;  // NaN stays
    squares += apart * apart;
    size += wanted * wanted;
  }
  double relative() const { return squares == 0.0 ? 0.0 : std::sqrt(squares / size); }
};

/// Measures the distance over the elements that this rank has.
Distance distance(StateValues const& got, StateValues const& wanted) {
  Distance out;
  for (std::size_t i = 0; i < wanted.values.size(); ++i)
    if (got.values.at(i)) out.add(*got.values[i], wanted.values[i].value());
  return out;
}
Distance distance(ModelValues const& got, ModelValues const& wanted) {
  Distance out;
  for (std::size_t u = 0; u < wanted.size(); ++u)
    for (std::size_t p = 0; p < wanted[u].size(); ++p)
      for (std::size_t i = 0; i < wanted[u][p].size(); ++i)
        out.add(got.at(u).at(p).at(i), wanted[u][p][i]);
  return out;
}

/// Largest differences from stage 0. All 0: the same bits.
struct Bounds {
  double loss = 0.0, norm = 0.0;               ///< relative
  double masters = 0.0, master_weights = 0.0;  ///< bounds of an element; relative, of all together
  double states = 0.0;                         ///< relative, of a state's elements together
  double weights = 0.0;                        ///< bounds of an element, as passes see it
};

/// Only codes lose bits (docs/explanation/zero.md, "Quantized communication"). Every other mode
/// moves the same values, and ExactModel's sums are exact in any order.
Bounds bounds_of(Modes const& m, int ranks) {
  auto const [weights, gradients] = codes_of(m, ranks);
  Bounds out;
  // Adam's first three updates are at most 1.06 times the rate, so two runs are apart by twice the
  // sum of the rates at most; all elements together by a third of what the updates change.
  out.masters = 2 * 1.06 * 1e-2 * (1.0 + 1.0 / 2 + 1.0 / 3) + std::ldexp(1.0, -8);
  out.master_weights = 0.01;
  out.states = 0.15;
  // The page states 10^-3 for the training loss with gradients of 4 and weights of 8 bits. Codes
  // of 4 bits are 18 times as far apart, and their errors have either sign.
  double const coarse = weights && m.quantized_weights == WeightBits::bits_4 ? 127.0 / 7 : 1.0;
  out.loss = coarse > 1.0 ? 5e-3 : 1e-3;
  // With weights of 8 bits as in zero.quantized_gather. Sums of this model's gradients are often in
  // the middle between two codes of 4 bits, and scales that are rounded up take all to the smaller
  // one.
  out.norm = (weights ? (coarse > 1.0 ? 0.015 : 5e-3) : 0.0) + (gradients ? 0.035 : 0.0);
  // Half a code of the largest weight, whose scale is rounded to bf16, and the rounding of weights.
  double const largest = 1.05;
  out.weights = out.masters + std::ldexp(1.0, -8) +
                (weights ? 0.5 * largest * coarse / 127 * (1.0 + 1.0 / 128) : 0.0);
  return out;
}

void expect_near(Outcome const& got, Outcome const& wanted, Bounds const& bounds) {
  EXPECT_EQ(got.skipped, wanted.skipped);
  for (std::size_t k = 0; k < steps; ++k) {
    EXPECT_LE(std::abs(got.losses[k] - wanted.losses[k]), bounds.loss * wanted.losses[k])
        << "loss of step " << k + 1;
    EXPECT_LE(std::abs(got.norms[k] - wanted.norms[k]), bounds.norm * wanted.norms[k])
        << "gradient norm of step " << k + 1;
  }
  for (auto const& state : wanted.states) {
    auto const found = std::ranges::find(got.states, state.name, &StateValues::name);
    ASSERT_NE(found, got.states.end()) << state.name;
    ASSERT_EQ(found->values.size(), state.values.size()) << state.name;
    auto const apart = distance(*found, state);
    bool const is_master = state.name == optim::master_weights_name;
    EXPECT_LE(apart.relative(), is_master ? bounds.master_weights : bounds.states) << state.name;
    if (is_master) {
      EXPECT_LE(apart.worst, bounds.masters);
    }
  }
  EXPECT_LE(distance(got.weights, wanted.weights).worst, bounds.weights) << "weights";
}

std::vector<float> flat(ModelValues const& values) {
  std::vector<float> out;
  for (auto const& unit : values)
    for (auto const& parameter : unit) out.insert(out.end(), parameter.begin(), parameter.end());
  return out;
}

/// Modes without codes have the bits of stage 0. Those with codes have the bits of the plainest
/// modes with these codes, which come near to stage 0.
TEST(Pairwise, ConfigurationsTrainAsStage0) {
  auto const comm = comm::make_mpi(session(), std::chrono::seconds(60));
  int exact = 0;
  for (auto const& c : configurations().configurations) {
    SCOPED_TRACE(name_of(c));
    auto const modes = modes_of(c);
    auto const got = train(modes);
    if (codes_of(modes, comm->size()).any()) {
      auto const& plainest = plainest_once(modes, comm->size());
      expect_near(plainest, stage_0_once(modes), bounds_of(modes, comm->size()));
      expect_near(got, plainest, {});
    } else {
      expect_near(got, stage_0_once(modes), {});
      ++exact;
    }
    EXPECT_TRUE(same_on_all_ranks(*comm, flat(got.weights)));
  }
  if (comm->rank() == 0)
    std::cout << configurations().configurations.size() << " configurations cover "
              << configurations().covered_pairs << " pairs, " << configurations().refused.size()
              << " are refused; " << exact << " configurations have the bits of stage 0; "
              << static_cast<double>(std::clock()) / CLOCKS_PER_SEC
              << " s of processor time on rank 0 of " << comm->size() << std::endl;
}

}  // namespace
}  // namespace tessera::test
