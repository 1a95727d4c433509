#pragma once
/// How a run scales with the number of ranks, and what ends it.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/plan/planner.hpp"
#include "tessera/plan/simulation.hpp"

namespace tessera::plan {

/// weak: each rank keeps its batch; strong: the batch of a step stays.
enum class Scaling { weak, strong };

struct ScalingRequest {
  PlanRequest plan;  ///< its cluster is the first point; with a machine
  Scaling scaling = Scaling::weak;
  std::vector<int> nodes;  ///< nodes of the points, ascending
  double jitter = 0.0;     ///< see classes_with_jitter()
  RankClass stragglers{.ranks = 0};
};

/// Seconds of a step that would be saved without ...
struct ScalingCosts {
  double latency = 0.0, bandwidth = 0.0;  ///< latency and bandwidth of collectives
  double update = 0.0;                    ///< the optimizer's update and transfers
  double slow_ranks = 0.0;                ///< jitter and stragglers
};

struct ScalingPoint {
  Cluster cluster;
  Choice choice;
  std::string refused;  ///< why there is no such run; the rest is then empty
  StepTime time;
  double tokens_per_second = 0.0;
  double efficiency = 0.0;  ///< tokens per second and rank, compared with the first point
  ScalingCosts costs;
  std::int64_t collectives = 0;  ///< operations per step
};

/// @throws ConfigError for a model or machine that cannot be planned
std::vector<ScalingPoint> scale(ScalingRequest const& request);

/// The first point that keeps less than @p efficiency; points.size(): all keep it.
std::size_t end_of_scaling(std::vector<ScalingPoint> const& points, double efficiency);
/// "latency of 396 collectives" ...: the largest cost of a point, and what helps.
std::string reason_of(ScalingPoint const& point);

std::string table_text(std::vector<ScalingPoint> const& points, Scaling scaling);
ConfigTree to_json(std::vector<ScalingPoint> const& points);
/// SVG: efficiency and time per step by ranks.
std::string draw_scaling(std::vector<ScalingPoint> const& points, Scaling scaling);

}  // namespace tessera::plan
