#include "compose/mpi_reference.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "mpi_test.hpp"
#include "tessera/core/error.hpp"

namespace tessera::comm::detail {
namespace {

TEST(MpiReference, RunsTheOperationsOfTheLibrary) {
  auto const& info = test::session().info();
  MpiReference reference(test::session(), {0, info.rank, info.world_size, "world"});
  std::size_t const n = static_cast<std::size_t>(info.world_size), bytes = 2 * n * sizeof(float);
  std::vector<float> in(2 * n, static_cast<float>(info.rank + 1)), out(2 * n, 0.0f);
  reference.run("all_reduce", Dtype::fp32, bytes, in.data(), out.data());
  EXPECT_EQ(in.back(), static_cast<float>(n * (n + 1) / 2));
  reference.run("reduce_scatter", Dtype::fp32, bytes, in.data(), out.data());
  EXPECT_EQ(out[1], static_cast<float>(n) * in.back());
  EXPECT_THROW(reference.run("gossip", Dtype::fp32, bytes, in.data(), out.data()), InternalError);
}

TEST(MpiReference, HasNoSumsOf16Bits) {
  EXPECT_TRUE(MpiReference::supports("reduce", Dtype::fp32));
  EXPECT_FALSE(MpiReference::supports("reduce_scatter", Dtype::bf16));
  EXPECT_TRUE(MpiReference::supports("all_gather", Dtype::bf16));
}

}  // namespace
}  // namespace tessera::comm::detail
