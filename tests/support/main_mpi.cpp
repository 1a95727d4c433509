/// Main of suites that run on several ranks: rank 0 prints, other ranks print failures only; a
/// failure on any rank, or no test found, is a failure. Tests reach MPI through session().
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>

#include "mpi_test.hpp"
#include "tessera/memory/runtime.hpp"

namespace {
tessera::topology::MpiSession* the_session = nullptr;

/// Prints what failed, with the rank, and nothing else.
class FailuresOnly : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(::testing::TestPartResult const& r) override {
    if (r.failed())
      std::fprintf(stderr, "[rank %d] %s:%d: %s\n", the_session->info().rank,
                   r.file_name() ? r.file_name() : "?", r.line_number(), r.message());
  }
};

/// Keeps the ranks in step, so that a failure is not followed by a deadlock two tests later.
class BarrierBetweenTests : public ::testing::EmptyTestEventListener {
  void OnTestEnd(::testing::TestInfo const&) override { MPI_Barrier(MPI_COMM_WORLD); }
};
}  // namespace

tessera::topology::MpiSession& tessera::test::session() { return *the_session; }

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  tessera::topology::MpiSession session(argc, argv);
  the_session = &session;
  int failed = 0;
  {
    // as a run: ranks that share cores would wait for each other's threads, which spin
    tessera::memory::Runtime const runtime({tessera::topology::cores_of_rank(session), -1});
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    if (session.info().rank != 0) {
      delete listeners.Release(listeners.default_result_printer());
      listeners.Append(new FailuresOnly);
    }
    listeners.Append(new BarrierBetweenTests);
    failed = RUN_ALL_TESTS();
    if (::testing::UnitTest::GetInstance()->test_to_run_count() == 0) failed = 1;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  }
  return failed;
}
