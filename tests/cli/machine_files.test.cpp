#include "installation.hpp"

#include <gtest/gtest.h>

#include "scratch_files.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"

namespace tessera::cli {
namespace {

TEST(MachineFiles, AreFilesOrNames) {
  ScratchFiles const files;
  auto const file = files.directory() / "m.json";
  write_file_atomically(file, R"({"name": "mine", "peak_flops": {"fp32": 1e12},
                                  "memory_bandwidth": 1e11, "intra_node": {"bandwidth": 1e10}})");
  EXPECT_EQ(find_machine(file.string()).name, "mine");
  write_file_atomically(file, "{}");
  EXPECT_THROW(find_machine(file.string()), ConfigError);
  EXPECT_THROW(find_machine("h300"), UsageError);
}

}  // namespace
}  // namespace tessera::cli
