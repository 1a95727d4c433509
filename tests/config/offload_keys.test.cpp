#include "detail/deepspeed_zero.hpp"

#include <gmock/gmock.h>

#include <map>

#include "tessera/core/error.hpp"

namespace tessera::config::detail {
namespace {

ResolvedOffload resolved(std::map<std::string, ConfigTree> const& keys, std::int64_t stage) {
  DeepSpeedConfig json;
  json.source = "ds.json";
  for (auto const& [key, value] : keys) json.keys.entries[key] = {value, Origin::deepspeed};
  return resolve_offload(json, stage);
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
  Offload wanted;
  wanted.optimizer = OffloadDevice::nvme;
  wanted.nvme_path = "/local";
  wanted.buffer_count = 5;
  wanted.tile_numel = 100000;
  wanted.block_size = 8192;
  wanted.queue_depth = 3;
  EXPECT_EQ(nvme.offload, wanted);
  EXPECT_TRUE(nvme.notes.empty());
}

TEST(OffloadKeys, GiveTheSwapOfTheWeights) {
  std::string const block = "zero_optimization.offload_param.";
  std::map<std::string, ConfigTree> keys{
      {block + "device", "nvme"},      {block + "nvme_path", "/a:/b"},
      {block + "buffer_count", 3},     {block + "buffer_size", 1000},
      {block + "max_in_cpu", 0},       {block + "pin_memory", false},
      {"aio.intra_op_parallelism", 2}, {"aio.single_submit", true},
      {"aio.overlap_events", false}};
  Offload wanted;
  wanted.parameters = OffloadDevice::nvme;
  wanted.parameters_nvme_path = "/a:/b";
  wanted.parameters_buffer_count = 3;
  wanted.parameters_buffer_size = 1000;
  wanted.max_in_cpu = 0;
  wanted.parameters_pin_memory = false;
  wanted.intra_op_parallelism = 2;
  wanted.single_submit = true;
  wanted.overlap_events = false;
  EXPECT_EQ(resolved(keys, 3).offload, wanted);
  EXPECT_EQ(resolved(keys, 2).offload.parameters, OffloadDevice::none);
  for (std::string const wrong : {"", "/a:", ":/a", "/a::/b"}) {
    keys[block + "nvme_path"] = wrong;
    EXPECT_THROW(resolved(keys, 3), ConfigError) << wrong;
  }
}

TEST(OffloadKeys, OfTheCpuAreThoseOfItsTiles) {
  auto const cpu = resolved({{"zero_optimization.offload_optimizer.device", "cpu"},
                             {"zero_optimization.offload_optimizer.pin_memory", false},
                             {"zero_optimization.offload_optimizer.ratio", 0.25},
                             {"zero_optimization.offload_param.device", "cpu"},
                             {"zero_optimization.sub_group_size", 5000}},
                            3);
  Offload wanted;
  wanted.optimizer = wanted.parameters = OffloadDevice::cpu;
  wanted.tile_numel = 5000;
  wanted.pin_memory = false;
  wanted.ratio = 0.25;
  EXPECT_EQ(cpu.offload, wanted);
  EXPECT_TRUE(cpu.notes.empty());
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
