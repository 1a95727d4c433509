#pragma once
/// Rates of schedules against those that the Python libraries gave (tests/oracles/schedules.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tessera/core/config_tree.hpp"
#include "tessera/core/error.hpp"
#include "tessera/optim/schedule.hpp"

namespace tessera::optim {

inline ConfigTree const& oracle() {
  static ConfigTree const tree =
      ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/schedules.json");
  return tree;
}

inline void expect_rates(Schedule const& schedule, ConfigTree const& c) {
  double largest = 0.0;
  for (auto const& rate : c.at("rates").as_array()) largest = std::max(largest, rate.as_double());
  std::int64_t step = 0;
  for (auto const& rate : c.at("rates").as_array()) {
    ++step;
    EXPECT_NEAR(schedule(step), rate.as_double(), 1e-15 * largest)
        << "step " << step << " of " << c.dump();
  }
}

/// Runs f, which must throw ConfigError, and gives the message.
template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (ConfigError const& e) {
    return e.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}
inline void expect_contains(std::string const& text, char const* part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace tessera::optim
