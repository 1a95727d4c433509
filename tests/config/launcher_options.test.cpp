#include "detail/option_rows.hpp"

#include <gtest/gtest.h>

namespace tessera::config::detail {
namespace {

/// A launcher passes --local_rank to a program that MPI starts: harmless. Another engine is not.
TEST(LauncherOptions, AreHarmlessOrRefused) {
  ArgumentRows table;
  add_launcher_options(table);
  EXPECT_NE(table.find("local_rank")->support, Support::refused);
  EXPECT_NE(table.find("fsdp")->support, Support::refused);
  EXPECT_EQ(table.find("sharded_ddp")->support, Support::refused);
  for (auto const& option : table.options())
    EXPECT_TRUE(option.support == Support::full || !option.note.empty()) << option.name;
}

}  // namespace
}  // namespace tessera::config::detail
