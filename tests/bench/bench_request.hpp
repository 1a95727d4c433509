#pragma once
/// The request of a save that a benchmark makes.

#include "tessera/checkpoint/save/save.hpp"

namespace tessera::bench {

inline checkpoint::SaveRequest save_request(std::filesystem::path const& checkpoints,
                                            zero::PartitionPlan const& plan,
                                            std::vector<memory::UnitSpec> const& units) {
  return {.directory = checkpoints,
          .step = 1,
          .run_id = "bench",
          .plan = plan,
          .units = units,
          .keep = 1,
          .model_config = ConfigTree::object(),
          .resolved_config = {},
          .trainer_state = ConfigTree::object(),
          .versions = {}};
}

}  // namespace tessera::bench
