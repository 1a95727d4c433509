#pragma once
/// The toy model over all ranks of the test, with one scratch directory for all of them.

#include <unistd.h>

#include <algorithm>
#include <memory>

#include "fixture.hpp"
#include "mpi_test.hpp"
#include "tessera/checkpoint/save/restore.hpp"
#include "tessera/comm/compose/host_collectives.hpp"

namespace tessera::test {

class SharedRun : public ::testing::Test {
 protected:
  SharedRun()
      : comm(comm::make_mpi(session(), std::chrono::seconds(60))),
        units(toy_units()),
        plan(units, comm->size()),
        // the name of the directory comes from rank 0
        dir(comm::broadcast_bytes(
            *comm, concat("shared-", comm->size(), "-", ::getpid(), "-", ++count), 0)) {
    comm->barrier();
  }
  ~SharedRun() override { comm->barrier(); }

  std::int64_t wrong_after_restore(fs::path const& checkpoint, std::int64_t step) {
    RankState state(plan, comm->rank());
    checkpoint::restore(checkpoint::read_manifest(checkpoint, *comm), plan, state.views(), *comm);
    return state.wrong(step);
  }
  /// Names in a directory, sorted; the same moment on all ranks.
  std::vector<std::string> names(std::string const& name = "checkpoints") {
    comm->barrier();
    std::vector<std::string> out;
    for (auto const& entry : fs::directory_iterator(dir / name))
      out.push_back(entry.path().filename().string());
    std::sort(out.begin(), out.end());
    comm->barrier();
    return out;
  }

  static inline int count = 0;
  std::unique_ptr<comm::Collectives> comm;
  std::vector<memory::UnitSpec> units;
  zero::PartitionPlan plan;
  ScratchDirectory dir;
};

}  // namespace tessera::test
