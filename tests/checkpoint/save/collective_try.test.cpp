#include "save/detail/collective_try.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mpi_test.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/core/error.hpp"

using namespace tessera;
using namespace tessera::test;
using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

struct CollectiveTry : ::testing::Test {
  std::unique_ptr<comm::Collectives> comm = comm::make_mpi(session(), std::chrono::seconds(60));
  int undone = 0;
  void attempt(std::function<void()> const& local) {
    checkpoint::detail::collective_try(*comm, local, [&] { ++undone; });
  }
};

TEST_F(CollectiveTry, WithoutAFailureNothingIsUndone) {
  int runs = 0;
  attempt([&] { ++runs; });
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(undone, 0);
}

TEST_F(CollectiveTry, AllRanksThrowTheErrorOfTheLowestFailedRank) {
  int const last = comm->size() - 1;
  try {
    attempt([&] {
      if (comm->rank() == last) throw DataError("shard is damaged");
    });
    ADD_FAILURE() << "no error";
  } catch (DataError const& e) {
    EXPECT_THAT(e.what(), HasSubstr("shard is damaged"));
    if (last > 0) {
      EXPECT_THAT(e.what(), HasSubstr(concat("rank ", last)));
    }
  }
  EXPECT_EQ(undone, 1) << "on every rank";
  try {
    attempt([&] {
      if (comm->rank() == 0) throw IoError("the disk is full");
      throw DataError("another");
    });
    ADD_FAILURE() << "no error";
  } catch (IoError const& e) {
    EXPECT_THAT(e.what(), HasSubstr("the disk is full"));
    if (last > 0) {
      EXPECT_THAT(e.what(), HasSubstr("another"));
    }
  }
  EXPECT_EQ(undone, 2);
}

TEST_F(CollectiveTry, ALostPeerIsNotAgreedUpon) {
  EXPECT_THROW(checkpoint::detail::try_locally([] { throw PeerLostError(1, "gone"); }),
               PeerLostError);
  auto const failure = checkpoint::detail::try_locally([] { throw UsageError("no such tag"); });
  EXPECT_EQ(failure.code, 64);
  EXPECT_EQ(failure.text, "no such tag");
  EXPECT_EQ(checkpoint::detail::try_locally([] {}).code, 0);
}

TEST_F(CollectiveTry, CodesHaveTheirErrors) {
  EXPECT_THROW(checkpoint::detail::throw_as(64, "x"), UsageError);
  EXPECT_THROW(checkpoint::detail::throw_as(65, "x"), DataError);
  EXPECT_THROW(checkpoint::detail::throw_as(74, "x"), IoError);
  EXPECT_THROW(checkpoint::detail::throw_as(70, "x"), InternalError);
}

}  // namespace
