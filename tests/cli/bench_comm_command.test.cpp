#include "commands.hpp"

#include <gtest/gtest.h>

#include "command_output.hpp"
#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

TEST(BenchCommCommand, RefusesWrongValues) {
  using test::output_of;
  EXPECT_THROW(output_of(add_bench_comm, {"bench-comm", "--operations", "gath"}), UsageError);
  EXPECT_THROW(output_of(add_bench_comm, {"bench-comm", "--largest", "1TiB"}), std::exception);
  EXPECT_THROW(output_of(add_bench_comm, {"bench-comm", "--largest", "8GiB"}), UsageError);
  EXPECT_THROW(output_of(add_bench_comm, {"bench-comm", "--smallest", "1MiB", "--largest", "1KiB"}),
               UsageError);
}

}  // namespace
}  // namespace tessera::cli
