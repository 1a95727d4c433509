/// The union of the ranks' rows against one that is formed from all of them on every rank.
#include "transfer/touched_rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "mpi_test.hpp"
#include "tessera/comm/base/planning.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/core/random.hpp"

namespace tessera::zero::detail {
namespace {

std::vector<std::int32_t> rows_of(int rank, int step, std::int64_t rows, std::int64_t count) {
  Philox const random{static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(rank)};
  std::vector<std::int32_t> out;
  for (std::int64_t i = 0; i < count; ++i)
    out.push_back(static_cast<std::int32_t>(random.uniform(static_cast<std::uint64_t>(i)) *
                                            static_cast<float>(rows)));
  return out;
}

TEST(TouchedRows, AreThoseOfAllRanks) {
  auto const comm = comm::make_mpi(test::session(), std::chrono::seconds(60));
  TouchedRows touched;
  int step = 0;
  for (std::int64_t const rows : {1, 15, 16, 64, 997})
    for (std::int64_t const count : {1, 40}) {
      ++step;
      std::set<std::int32_t> expected;
      std::int64_t named = 0;
      for (int q = 0; q < comm->size(); ++q) {  // the ranks name different numbers of rows
        auto const of_rank = rows_of(q, step, rows, count + q);
        expected.insert(of_rank.begin(), of_rank.end());
        named += count + q;
      }
      expected.insert(static_cast<std::int32_t>(rows) - 1);
      auto own = rows_of(comm->rank(), step, rows, count + comm->rank());
      own.push_back(static_cast<std::int32_t>(rows) - 1);  // every rank: the largest count
      named += comm->size();
      touched.start(*comm, rows, {own.data(), static_cast<std::int64_t>(own.size())});
      EXPECT_TRUE(touched.is_started());
      auto const all = touched.finish(*comm, rows);
      EXPECT_FALSE(touched.is_started());
      EXPECT_EQ(all.named, named);
      EXPECT_EQ(all.rows, std::vector<std::int32_t>(expected.begin(), expected.end()))
          << rows << " rows";
    }
}

TEST(TouchedRows, APlanCountsEveryNamedRowOnce) {
  auto const comm = comm::make_planning_collectives(4, memory::MemorySpace::host);
  TouchedRows touched;
  for (auto const& [named, most, expected] :
       {std::tuple<std::int64_t, std::int64_t, std::size_t>{5, 100, 20},
        {5, 7, 7},
        {500, 900, 800}}) {
    touched.start(*comm, 800, {nullptr, named});
    auto const all = touched.finish(*comm, most);
    EXPECT_EQ(all.named, 4 * named);
    ASSERT_EQ(all.rows.size(), expected);
    EXPECT_EQ(all.rows.back(), static_cast<std::int32_t>(expected) - 1);
  }
}

}  // namespace
}  // namespace tessera::zero::detail
