#pragma once
/// The table of flops_profiler: parameters, multiplications and time of each unit.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/config/reporting.hpp"
#include "tessera/memory/param_provider.hpp"
#include "tessera/train/step/pass_timer.hpp"

namespace tessera::train {

struct UnitProfile {
  std::string name;
  std::int64_t parameters = 0;  ///< a tied matrix counts in the unit that has it
  double macs = 0.0;            ///< multiply-accumulate operations of one forward pass
  UnitTime time;
};

/// Tokens of a step on one rank, and the widths that attention and head need.
struct ProfiledStep {
  std::int64_t step = 1;
  std::int64_t sequences = 1, sequence_length = 1;
  std::int64_t hidden_size = 1, vocabulary = 1;
  std::int64_t ranks = 1;
  PhaseTimes phases;
};

/// Matrix products of all positions; attention counts scores and values of full rows, as DeepSpeed
/// does. The first unit is the embedding (no products), the last one the head.
std::vector<UnitProfile> profile_units(std::vector<memory::UnitSpec> const& units,
                                       std::vector<UnitTime> const& times,
                                       ProfiledStep const& step);

/// Lines of text. Backward counts twice the forward products, and recompute_factor more.
std::string flops_table(std::vector<UnitProfile> const& units, ProfiledStep const& step,
                        config::FlopsProfiler const& options);

}  // namespace tessera::train
