#include "tessera/optim/loss_scaler.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"

namespace tessera::optim {
namespace {

LossScalerConfig dynamic(int power, std::int64_t window, int hysteresis) {
  LossScalerConfig c;
  c.dynamic = true;
  c.initial_scale_power = power;
  c.window = window;
  c.hysteresis = hysteresis;
  return c;
}

/// The scale after each step of a history: 'o' overflow, '.' clean.
std::vector<double> scales(LossScaler& scaler, std::string const& history) {
  std::vector<double> out;
  for (char step : history) {
    scaler.update(step == 'o');
    out.push_back(scaler.scale());
  }
  return out;
}
std::vector<double> scales(LossScalerConfig const& c, std::string const& history) {
  LossScaler scaler(c);
  return scales(scaler, history);
}
using Scales = std::vector<double>;

struct Row {
  char const* what;
  LossScalerConfig config;
  char const* history;
  Scales expected;
};

TEST(LossScaler, Table) {
  auto consecutive = dynamic(4, 3, 2);
  consecutive.consecutive_hysteresis = true;
  auto floor = dynamic(2, 100, 1);
  floor.min_scale = 3.0;
  Row const rows[] = {
      {"the first growth comes after window + 1 clean steps",
       dynamic(4, 3, 2),
       ".......",
       {16, 16, 16, 32, 32, 32, 64}},
      {"hysteresis absorbs the first overflow", dynamic(4, 100, 2), "o.o", {16, 16, 8}},
      {"hysteresis 1 halves at once", dynamic(4, 100, 1), "oo", {8, 4}},
      {"hysteresis 3 absorbs two", dynamic(4, 100, 3), "ooo", {16, 16, 8}},
      {"after a halving overflows halve at once until a growth",
       dynamic(6, 100, 2),
       "ooo.o",
       {64, 32, 16, 16, 8}},
      {"after an overflow at step k the next growth is at k + 1 + window",
       dynamic(4, 3, 1),
       "o....",
       {8, 8, 8, 8, 16}},
      {"a growth restores hysteresis", dynamic(4, 2, 2), "oo...oo", {16, 8, 8, 8, 16, 16, 8}},
      {"without a growth clean steps do not",
       dynamic(4, 100, 2),
       "o..o..o",
       {16, 16, 16, 8, 8, 8, 4}},
      {"with consecutive_hysteresis any clean step does",
       consecutive,
       "o.o.oo",
       {16, 16, 16, 16, 16, 8}},
      {"the scale stops at its minimum", floor, "o", {3}},
  };
  for (auto const& row : rows) EXPECT_EQ(scales(row.config, row.history), row.expected) << row.what;
}

/// Stored by tests/oracles/loss_scaler.py: random histories, some of which end the run.
TEST(LossScaler, EqualsDeepspeed) {
  auto const oracle =
      ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/loss_scaler.json");
  for (auto const& c : oracle.at("cases").as_array()) {
    LossScalerConfig config =
        dynamic(static_cast<int>(c.at("power").as_int()), c.at("window").as_int(),
                static_cast<int>(c.at("hysteresis").as_int()));
    config.consecutive_hysteresis = c.at("consecutive").as_bool();
    config.min_scale = c.at("min_scale").as_double();
    LossScaler scaler(config);
    auto const& expected = c.at("scales").as_array();
    std::string const& history = c.at("history").as_string();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      scaler.update(history[i] == 'o');
      ASSERT_EQ(scaler.scale(), expected[i].as_double()) << "step " << i + 1 << " of " << c.dump();
    }
    if (c.at("ends").as_bool()) {
      EXPECT_THROW(scaler.update(true), ConfigError) << c.dump();
    }
    EXPECT_EQ(scaler.state().last_overflow, c.at("last_overflow").as_int());
    EXPECT_EQ(scaler.state().hysteresis, c.at("left").as_int());
  }
}

/// Stored by tests/oracles/grad_scaler.py: random histories of torch.amp.GradScaler.
TEST(LossScaler, EqualsTorch) {
  auto const oracle =
      ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/grad_scaler.json");
  for (auto const& c : oracle.at("cases").as_array()) {
    LossScalerConfig config = dynamic(16, c.at("interval").as_int(), 1);
    config.min_scale = std::ldexp(1.0, -24);
    config.growth = ScaleGrowth::torch;
    Scales expected;
    for (auto const& scale : c.at("scales").as_array()) expected.push_back(scale.as_double());
    EXPECT_EQ(scales(config, c.at("history").as_string()), expected) << c.dump();
  }
}

TEST(LossScaler, EndsTheRunWhenItCannotShrink) {
  LossScaler scaler(dynamic(1, 100, 1));
  EXPECT_EQ(scales(scaler, "o"), Scales{1});
  try {
    scaler.update(true);
    FAIL();
  } catch (ConfigError const& e) {
    EXPECT_EQ(e.code(), ExitCode::bad_config);
    EXPECT_NE(std::string(e.what()).find("minimum of 1"), std::string::npos) << e.what();
  }
  EXPECT_EQ(scaler.scale(), 1.0);
}

/// At the minimum, too, hysteresis absorbs overflows before the run ends.
TEST(LossScaler, HysteresisHoldsAtTheMinimum) {
  LossScaler scaler(dynamic(0, 100, 3));
  EXPECT_EQ(scales(scaler, "oo"), (Scales{1, 1}));
  EXPECT_THROW(scaler.update(true), ConfigError);
}

TEST(LossScaler, AStaticScaleNeverMoves) {
  LossScalerConfig c;
  c.static_scale = 128.0;
  EXPECT_EQ(scales(c, "oooooo.....o"), Scales(12, 128.0));
}

TEST(LossScaler, ARestoredScalerContinuesTheSame) {
  std::string const history = "..o....o.oo........o...";
  for (std::size_t cut = 0; cut <= history.size(); ++cut) {
    LossScaler whole(dynamic(10, 3, 2)), first(dynamic(10, 3, 2)), second(dynamic(10, 3, 2));
    scales(whole, history);
    scales(first, history.substr(0, cut));
    second.restore(first.state());
    scales(second, history.substr(cut));
    EXPECT_EQ(second.state(), whole.state()) << "cut at " << cut;
  }
}

TEST(LossScaler, RefusesDamagedStates) {
  LossScaler scaler(dynamic(10, 3, 2));
  for (LossScalerState bad : {LossScalerState{0.0, 0, -1, 2}, LossScalerState{8.0, -1, -1, 2},
                              LossScalerState{8.0, 5, 5, 2}, LossScalerState{8.0, 5, 3, 0}})
    EXPECT_THROW(scaler.restore(bad), DataError);
}

TEST(LossScaler, RefusesConfigurationsThatCannotWork) {
  auto const refused = [](auto change) {
    LossScalerConfig c = dynamic(16, 1000, 2);
    change(c);
    EXPECT_THROW(LossScaler{c}, ConfigError);
  };
  refused([](auto& c) { c.initial_scale_power = -1; });
  refused([](auto& c) { c.initial_scale_power = 200; });
  refused([](auto& c) { c.window = 0; });
  refused([](auto& c) { c.hysteresis = 0; });
  refused([](auto& c) { c.min_scale = 0.0; });
  refused([](auto& c) { c.dynamic = false, c.static_scale = 0.0; });
}

}  // namespace
}  // namespace tessera::optim
