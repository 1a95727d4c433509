#include "tessera/train/setup/memory_plan.hpp"

#include <gmock/gmock.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <filesystem>

#include "engine_settings.hpp"

namespace tessera::train {
namespace {

using ::testing::HasSubstr;

zero::EngineConfig config_on(memory::SwapDirectories states, memory::SwapDirectories weights) {
  zero::EngineConfig config;
  config.partition = zero::partition_of(3);
  test::states_of(config).optimizer_swap.emplace().transfers.directories = std::move(states);
  test::weights_of(config).weight_swap.emplace().transfers.directories = std::move(weights);
  return config;
}

zero::MemoryReport report() {
  zero::MemoryReport out;
  out.swapped = 3 << 20;
  out.swapped_weights = 1 << 20;
  return out;
}

TEST(SwapRoom, AddsTheDirectoriesOfAFileSystem) {
  std::filesystem::path const directory = ::testing::TempDir();
  auto const inner = directory / "swap_room_inner";
  std::filesystem::create_directory(inner);
  auto const rooms =
      swap_rooms(config_on({directory, inner, "/missing"}, {inner, "/proc"}), report());
  ASSERT_EQ(rooms.size(), 1u) << "what is missing or has no files is left out";
  EXPECT_EQ(rooms[0].directories, (memory::SwapDirectories{directory, inner}));
  EXPECT_EQ(rooms[0].optimizer, 2u * ((2 << 20) / 3 + 1));
  EXPECT_EQ(rooms[0].weights, 1u << 19);
  EXPECT_EQ(rooms[0].needed(3), 3 * (rooms[0].optimizer + rooms[0].weights));
  EXPECT_EQ(swap_rooms(config_on({directory}, {"/dev/shm"}), report()).size(), 2u);
  EXPECT_TRUE(swap_rooms({}, {}).empty());
  std::filesystem::remove(inner);
}

TEST(SwapRoom, IsWhatTheFileSystemHasFree) {
  std::string const directory = ::testing::TempDir();
  struct statvfs before {
  }, after{};
  ::statvfs(directory.c_str(), &before);
  auto const rooms = swap_rooms(config_on({directory}, {}), report());
  ::statvfs(directory.c_str(), &after);
  ASSERT_EQ(rooms.size(), 1u);
  EXPECT_GE(rooms[0].free, std::min(before.f_bavail, after.f_bavail) * before.f_frsize / 2);
  EXPECT_LE(rooms[0].free, std::max(before.f_bavail, after.f_bavail) * before.f_frsize * 2);
}

TEST(SwapRoom, NamesWhatLacksAndWhatToChange) {
  std::size_t constexpr mib = 1 << 20;
  std::vector<SwapRoom> const rooms{{{"/a"}, 2 * mib, 0, 100 * mib},
                                    {{"/b", "/c"}, 2 * mib, mib, 5 * mib}};
  EXPECT_EQ(swap_shortage(rooms, 1, "n1"), "");
  auto const text = swap_shortage(rooms, 2, "n1");
  EXPECT_THAT(text, HasSubstr("nvme_path /b and /c on host n1 has 5.0 MiB free, and swap files of "
                              "2 ranks there need 6.0 MiB (master weights and optimizer states "
                              "4.0 MiB, weights 2.0 MiB); free 1.0 MiB"));
  EXPECT_THAT(text, HasSubstr("use more nodes"));
}

}  // namespace
}  // namespace tessera::train
