#pragma once
/// Measures a machine profile with the kernels, collectives and files of a run.

#include <filesystem>
#include <string>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/memory/queue.hpp"
#include "tessera/plan/machine_profile.hpp"
#include "tessera/plan/step_time.hpp"

namespace tessera::plan {

struct Measurement {
  memory::Queue& compute;
  comm::Collectives& comm;
  Cluster cluster;
  std::filesystem::path directory;  ///< directory of the drive that is measured
  std::string host;
};

/// All ranks measure at the same time, as they compute and send in a run; the slowest counts. Takes
/// some seconds. Collective.
MachineProfile measure_machine(Measurement const& where);

}  // namespace tessera::plan
