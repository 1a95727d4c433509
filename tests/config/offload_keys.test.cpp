#include "detail/offload_keys.hpp"

#include <gmock/gmock.h>

#include <map>

namespace tessera::config::detail {
namespace {

ResolvedOffload resolved(std::map<std::string, ConfigTree> const& keys, std::int64_t stage) {
  return resolve_offload(
      [&](std::string const& key) -> ConfigTree const* {
        auto const it = keys.find(key);
        return it == keys.end() ? nullptr : &it->second;
      },
      stage, "ds.json");
}

TEST(OffloadKeys, GiveTheSwapOfTheOptimizer) {
  EXPECT_EQ(resolved({}, 0).offload, Offload{});
  std::string const block = "zero_optimization.offload_optimizer.";
  auto const nvme = resolved({{block + "device", "nvme"},
                              {block + "nvme_path", "/local"},
                              {block + "buffer_count", 5},
                              {"zero_optimization.sub_group_size", 100000},
                              {"aio.block_size", 8192},
                              {"aio.queue_depth", 3}},
                             1);
  EXPECT_EQ(nvme.offload,
            (Offload{OffloadDevice::nvme, OffloadDevice::none, "/local", 5, 100000, 8192, 3}));
  EXPECT_TRUE(nvme.notes.empty());
}

/// The numbers of a swap are not those of a run that has none.
TEST(OffloadKeys, LeaveHostMemoryAlone) {
  auto const cpu = resolved({{"zero_optimization.offload_optimizer.device", "cpu"},
                             {"zero_optimization.offload_param.device", "cpu"},
                             {"zero_optimization.sub_group_size", 5}},
                            3);
  EXPECT_EQ(cpu.offload, (Offload{OffloadDevice::cpu, OffloadDevice::cpu, {}}));
  EXPECT_THAT(cpu.notes, ::testing::ElementsAre(::testing::HasSubstr("computes on CPUs")));
}

TEST(OffloadKeys, AreInTheTable) {
  OptionTable table;
  add_offload(table);
  add_aio(table);
  EXPECT_NE(table.find("zero_optimization.offload_optimizer.nvme_path"), nullptr);
  EXPECT_NE(table.find("aio.thread_count"), nullptr);
}

}  // namespace
}  // namespace tessera::config::detail
