#pragma once
/// A picture of a plan.

#include <string>
#include <vector>

#include "tessera/plan/planner.hpp"

namespace tessera::plan {

/// SVG: memory per rank of each choice, stacked by purpose, with the limit; below it the time of a
/// step of each choice, if the plan has times.
std::string draw_plan(Planner const& planner, std::vector<PlannedChoice> const& choices);

}  // namespace tessera::plan
