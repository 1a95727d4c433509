#pragma once
/// The engine's parts on one process, without MPI.

#include <gtest/gtest.h>

#include "gradients/gradient_flow.hpp"
#include "layout/stage_rules.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/zero/engine/engine.hpp"
#include "weights/weight_stores.hpp"

namespace tessera::test {

inline memory::ParameterSpec parameter(std::string name, std::vector<std::int64_t> shape,
                                       bool decays = true) {
  return {std::move(name), std::move(shape), {}, decays, {}};
}

/// A block of a matrix that decays, a bias that does not, and another matrix; and a head.
inline std::vector<memory::UnitSpec> two_units() {
  return {
      {"block", {parameter("w", {5, 8}), parameter("b", {8}, false), parameter("k", {3, 2, 4})}},
      {"head", {parameter("norm", {8}, false)}}};
}

/// What every part gets from the engine.
struct Parts {
  explicit Parts(zero::EngineConfig c = {})
      : config(std::move(c)),
        context{config, plan, {&plan, Rank(comm->rank()), true}, *comm, *compute} {}

  zero::EngineConfig config;
  std::vector<memory::UnitSpec> units = two_units();
  std::unique_ptr<comm::Collectives> comm = comm::make_loopback();
  std::unique_ptr<memory::Queue> compute = memory::make_inline_queue("compute");
  zero::PartitionPlan plan{units, 1};
  zero::detail::StageRules rules = zero::detail::rules_for(config, 1);
  zero::detail::StoreContext context;
};

}  // namespace tessera::test
