/// The search against an exhaustive one, over tables of costs: no test measures time. Some tables
/// are computed, others were measured by tests/bench/tuner.py.
#include "tessera/plan/tuner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

#include "plan_fixture.hpp"
#include "tessera/core/error.hpp"

namespace tessera::plan {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t mebi = std::int64_t{1} << 20;

/// A machine that differs from the plan's: small micro-batches and some stages are slower, memory
/// ends earlier, and measurements are off by up to a percent.
struct Truth {
  MachineProfile machine = test::round_machine();
  double small_batch = 0.5;             ///< more time of micro-batch 1, in parts of its time
  double memory = 1.0;                  ///< share of the limit that is there
  double stage_cost[4] = {1, 1, 1, 1};  ///< factors
  double light = 1.0, offload = 1.0;    ///< shares of light recomputation, of an update on the host
};

struct Case {
  char const* name;
  std::vector<std::string> words;
  Cluster cluster;
  Limits limits;
  Truth truth;
  bool plan_has_times = false;
};

class Costs {
 public:
  explicit Costs(Case const& of) : case_(of), truth_(request(of, true)) {}

  static PlanRequest request(Case const& of, bool has_times) {
    auto out = test::request(test::small_gpt2(of.words), of.cluster);
    out.limits = of.limits;
    out.splits_given_batch = true;
    if (has_times) out.machine = of.truth.machine;
    return out;
  }

  Trial measure(Choice const& choice) {
    ++measured;
    Trial out;
    out.choice = choice;
    auto const& truth = case_.truth;
    auto const& planned = truth_.evaluate(choice);
    auto const limit = static_cast<double>(case_.limits.device) * truth.memory;
    if (!planned.refused.empty() || !planned.fits ||
        (limit > 0 && static_cast<double>(planned.device_bytes) > limit)) {
      out.refused = "out of memory";
      return out;
    }
    double const noise =
        static_cast<double>(std::hash<std::string>{}(text_of(choice)) % 1000) / 1000.0;
    double const light = choice.recompute == Recompute::light ? truth.light : 1.0;
    double const offload = choice.offloads() ? truth.offload : 1.0;
    out.seconds = planned.time->seconds * truth.stage_cost[choice.stage] * light * offload *
                  (1.0 + truth.small_batch / static_cast<double>(choice.micro_batch)) *
                  (0.995 + 0.01 * noise);
    return out;
  }

  /// The shortest step of all open choices that run.
  double best() {
    double out = std::numeric_limits<double>::max();
    int const before = measured;
    for (auto const& choice : truth_.open())
      if (auto const trial = measure(choice); trial.ran()) out = std::min(out, trial.seconds);
    exhaustive = measured - before;
    measured = before;
    return out;
  }

  int measured = 0, exhaustive = 0;

 private:
  Case const& case_;
  Planner truth_;
};

TuningResult search(Case const& of, Costs& costs, config::Tuning const& limits = {}) {
  Planner planner(Costs::request(of, of.plan_has_times));
  return Tuner(planner, limits,
               {[&](Choice const& choice, double) { return costs.measure(choice); },
                [] { return 300.0; }})
      .run();
}

MachineProfile slow_network() {
  auto m = test::round_machine();
  m.intra_node = {1e-5, 1e8};
  return m;
}

std::vector<Case> cases() {
  std::vector<Case> out{
      {"no_limit", {}, {1, 4}, {}, {}},
      {"stage_0_does_not_fit", {}, {1, 4}, {.device = 50 * mebi}, {}},
      {"tight", {}, {1, 4}, {.device = 26 * mebi}, {}},
      {"memory_ends_earlier", {}, {1, 4}, {.device = 60 * mebi}, {.memory = 0.8}},
      {"slow_network", {}, {1, 8}, {.device = 60 * mebi}, {slow_network(), 0.2}},
      {"many_divisors", {"--per_device_train_batch_size", "60"}, {1, 2}, {.device = 90 * mebi}, {}},
      {"stage_2_is_fastest", {}, {1, 4}, {}, {.stage_cost = {1.3, 1.2, 0.7, 1.1}}},
      {"light_is_faster", {}, {1, 4}, {}, {.light = 0.85}},
      {"offload_is_faster", {}, {1, 2}, {}, {.offload = 0.6}},
      {"small_batches_are_fast", {}, {1, 2}, {}, {.small_batch = -0.2}},
      {"one_rank", {"--gradient_accumulation_steps", "4"}, {1, 1}, {.device = 120 * mebi}, {}}};
  auto const without = out.size();
  for (std::size_t i = 0; i < without; ++i) {
    out.push_back(out[i]);
    out.back().plan_has_times = true;
  }
  return out;
}

TEST(Tuner, FindsTheBestOfAnExhaustiveSearchWithinThreePercent) {
  int measured = 0, exhaustive = 0;
  for (auto const& of : cases()) {
    Costs costs(of);
    double const best = costs.best();
    auto const result = search(of, costs);
    ASSERT_TRUE(result.best) << of.name;
    EXPECT_LE(result.best->seconds, 1.03 * best) << of.name << ", " << text_of(result.best->choice)
                                                 << " after " << costs.measured << " trials";
    EXPECT_EQ(result.trials.size(), static_cast<std::size_t>(costs.measured));
    measured += costs.measured;
    exhaustive += costs.exhaustive;
  }
  EXPECT_LT(2 * measured, exhaustive) << "few of them are measured";
}

config::OffloadDevice device_of(std::string const& name) {
  return name == "cpu"    ? config::OffloadDevice::cpu
         : name == "nvme" ? config::OffloadDevice::nvme
                          : config::OffloadDevice::none;
}

Recompute recompute_of(std::string const& name) {
  return name == "block" ? Recompute::block : name == "light" ? Recompute::light : Recompute::none;
}

/// Step times of all candidates of a run, as an exhaustive search of tessera-train measured them.
struct Recorded {
  Recorded(std::string case_name, ConfigTree const& table) : name(std::move(case_name)) {
    std::vector<std::string> words;
    for (auto const& word : table.at("options").as_array()) words.push_back(word.as_string());
    words.insert(words.end(),
                 {"--per_device_train_batch_size", std::to_string(table.at("batch").as_int())});
    auto const memory = table.at("device_memory").as_string();
    if (memory.empty()) words.push_back("--use_cpu");
    request = test::request(words, {1, static_cast<int>(table.at("ranks").as_int())});
    request.splits_given_batch = true;
    if (!memory.empty()) request.limits.device = std::stoll(memory) * mebi;
    for (auto const& row : table.at("times").as_array()) {
      auto const& r = row.as_array();
      auto const number = [&](std::size_t i) { return r.at(i).as_int(); };
      trials.push_back({{static_cast<int>(number(0)), device_of(r.at(1).as_string()),
                         device_of(r.at(2).as_string()), recompute_of(r.at(3).as_string()),
                         number(4), number(5), number(7), number(6)},
                        r.at(8).as_double(),
                        ""});
      best = std::min(best, trials.back().seconds);
    }
  }
  Trial measure(Choice const& choice) const {
    auto const found = std::find_if(trials.begin(), trials.end(),
                                    [&](Trial const& t) { return t.choice == choice; });
    return found == trials.end() ? Trial{choice, 0.0, "not recorded"} : *found;
  }

  std::string name;
  PlanRequest request;
  std::vector<Trial> trials;
  double best = std::numeric_limits<double>::max();
};

std::vector<Recorded> recorded_tables() {
  auto const file = ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/tuner_tables.json");
  std::vector<Recorded> out;
  for (auto const& [name, table] : file.at("tables").as_object()) out.emplace_back(name, table);
  return out;
}

/// Differences between single measurements are in the tables too, so that a search without luck
/// may miss by more in one.
TEST(Tuner, FindsTheBestOfMeasuredTablesWithinThreePercent) {
  auto const tables = recorded_tables();
  std::size_t measured = 0, exhaustive = 0, found = 0;
  for (auto const& table : tables) {
    Planner planner(table.request);
    auto const result = Tuner(planner, {},
                              {[&](Choice const& choice, double) { return table.measure(choice); },
                               [] { return 300.0; }})
                            .run();
    ASSERT_TRUE(result.best) << table.name;
    EXPECT_EQ(result.admitted, table.trials.size()) << table.name;
    EXPECT_LE(result.best->seconds, 1.05 * table.best)
        << table.name << ", " << text_of(result.best->choice);
    found += result.best->seconds <= 1.03 * table.best ? 1 : 0;
    measured += result.trials.size();
    exhaustive += table.trials.size();
  }
  EXPECT_GE(found, 6u);
  EXPECT_LT(measured, exhaustive);
}

/// Each measurement is up to 10 % too long, a repeated one by another part.
TEST(Tuner, MeasuresTheBestAgainSoThatNoiseDoesNotDecide) {
  Case const of{"noise", {}, {1, 4}, {}, {.stage_cost = {1.0, 1.02, 1.06, 1.1}}};
  Costs costs(of);
  double const best = costs.best();
  Planner planner(Costs::request(of, false));
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    auto const measure = [&](Choice const& choice, double) {
      auto trial = costs.measure(choice);
      trial.seconds *= 1.0 + 0.1 * static_cast<double>(random()) / 4294967295.0;
      return trial;
    };
    auto const result = Tuner(planner, {}, {measure, [] { return 300.0; }}).run();
    ASSERT_TRUE(result.best);
    EXPECT_LE(costs.measure(result.best->choice).seconds, 1.03 * best)
        << "seed " << seed << ": " << text_of(result.best->choice);
  }
}

TEST(Tuner, AnExhaustiveSearchMeasuresAllThatFits) {
  Case const of{"all", {}, {1, 4}, {.device = 60 * mebi}, {.small_batch = 3.0}};
  Costs costs(of);
  double const best = costs.best();
  auto const result = search(of, costs, {.trials = 1000, .early_stopping = 1, .exhaustive = true});
  ASSERT_TRUE(result.best);
  EXPECT_EQ(result.best->seconds, best);
  EXPECT_EQ(result.ended_by, "every candidate");
  std::vector<Choice> different;
  for (auto const& trial : result.trials)
    if (std::find(different.begin(), different.end(), trial.choice) == different.end())
      different.push_back(trial.choice);
  EXPECT_EQ(different.size(), result.admitted) << "no bucket is smaller than the model";
}

TEST(Tuner, MeasuresOnlyWhatThePlanAdmits) {
  Case const of{"limit", {}, {1, 4}, {.device = 50 * mebi}, {}};
  Costs costs(of);
  Planner plan(Costs::request(of, false));
  auto const result = search(of, costs);
  for (auto const& trial : result.trials) EXPECT_TRUE(plan.evaluate(trial.choice).fits);
  EXPECT_LT(result.admitted, result.open);
}

TEST(Tuner, EndsByItsLimits) {
  Case const of{"limits", {}, {1, 4}, {}, {}};
  Costs costs(of);
  auto const few = search(of, costs, {.trials = 2});
  EXPECT_THAT(few.ended_by, HasSubstr("2 trials"));
  EXPECT_LE(few.trials.size(), 4u) << "and the finalists once more";
  Planner planner(Costs::request(of, false));
  double left = 10.0;
  auto const late = Tuner(planner, {.minutes = 1.0},
                          {[&](Choice const& choice, double) {
                             left -= 4.0;
                             return costs.measure(choice);
                           },
                           [&] { return left; }})
                        .run();
  EXPECT_THAT(late.ended_by, HasSubstr("1 minutes"));
  EXPECT_EQ(late.trials.size(), 2u) << "a quarter of the time is kept to decide among the best";
  auto const bounded = search(of, costs, {.least_micro_batch = 2, .largest_micro_batch = 4});
  for (auto const& trial : bounded.trials) {
    EXPECT_GE(trial.choice.micro_batch, 2);
    EXPECT_LE(trial.choice.micro_batch, 4);
  }
}

TEST(Tuner, GoesDownWhenNothingLargerFits) {
  Case const of{"memory", {}, {1, 1}, {.device = 400 * mebi}, {.memory = 0.25}};
  Costs costs(of);
  auto const result = search(of, costs);
  ASSERT_TRUE(result.best);
  EXPECT_LE(result.best->seconds, 1.03 * costs.best());
  EXPECT_TRUE(std::any_of(result.trials.begin(), result.trials.end(), [](Trial const& t) {
    return !t.ran();
  })) << "memory ends before the plan's";
}

TEST(Tuner, SaysThatNothingRan) {
  Case const of{"nothing", {}, {1, 4}, {}, {}};
  Planner planner(Costs::request(of, false));
  auto const result = Tuner(planner, {},
                            {[](Choice const& choice, double) {
                               return Trial{choice, 0.0, "no"};
                             },
                             [] { return 1.0; }})
                          .run();
  EXPECT_FALSE(result.best);
  EXPECT_FALSE(result.trials.empty());
}

}  // namespace
}  // namespace tessera::plan
