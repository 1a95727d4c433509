#include "tessera/train/step_requests.hpp"

#include <vector>

namespace tessera::train {

StepRequests agree_on_requests(comm::Collectives& comm, StepRequests const& mine) {
  std::vector<double> highest{static_cast<double>(mine.stop), mine.save ? 1.0 : 0.0,
                              mine.disk_busy ? 1.0 : 0.0, mine.lock_lost ? 1.0 : 0.0, mine.seconds};
  comm::all_reduce_values(comm, highest, comm::ReduceOp::max);
  return {static_cast<int>(highest[0]), highest[1] != 0.0, highest[2] != 0.0, highest[3] != 0.0,
          highest[4]};
}

}  // namespace tessera::train
