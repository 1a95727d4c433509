#include "tessera/memory/swap_file.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>

#include "tessera/core/error.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::memory {
namespace {

namespace fs = std::filesystem;

class SwapFiles : public ::testing::Test {
 protected:
  SwapFiles() : directory_(fs::path(::testing::TempDir()) / "swap_files") {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  /// Aligned memory of @p pages pages.
  static float* aligned(Buffer& buffer) {
    auto const at = reinterpret_cast<std::uintptr_t>(buffer.data());
    return reinterpret_cast<float*>((at + swap_alignment - 1) / swap_alignment * swap_alignment);
  }
  static Buffer pages(std::size_t count) {
    return {"pages", Purpose::workspace, (count + 1) * swap_alignment};
  }
  fs::path directory_;
};
constexpr std::size_t floats_of_page = swap_alignment / sizeof(float);

TEST_F(SwapFiles, LeaveNothingInTheDirectory) {
  SwapFile const file("values", {directory_}, 10000);
  EXPECT_EQ(file.bytes(), 3 * swap_alignment);
  EXPECT_TRUE(fs::is_empty(directory_));
  EXPECT_EQ(static_cast<float*>(file.data())[2500], 0.0f);
}

/// Simulates a drive that fails: the pages of a file that becomes shorter are gone.
void lose_pages_of_nameless_files() {
  for (auto const& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code none;
    auto const target = fs::read_symlink(entry.path(), none).string();
    if (target.find("swap_files") == std::string::npos) continue;
    if (target.find("(deleted)") != std::string::npos) fs::resize_file(entry.path(), 0);
  }
}

TEST_F(SwapFiles, EndTheProcessWithAMessageWhereTheMappingFails) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto const fail = [&] {
    SwapFile const other("states", {directory_}, 9000), file("weights", {directory_}, 9000);
    lose_pages_of_nameless_files();
    static_cast<volatile float*>(file.data())[600] = 1.0f;
  };
  EXPECT_EXIT(fail(), ::testing::ExitedWithCode(74),
              "error: cannot read or write weights in the swap file in .*SIGBUS.*nvme_path");
  auto const fail_elsewhere = [&] {
    SwapFile const gone("weights", {directory_}, 9000);
    std::raise(SIGBUS);
    std::raise(SIGBUS);  // under the handler before
  };
  EXPECT_EXIT(fail_elsewhere(), ::testing::KilledBySignal(SIGBUS), "");
}

TEST_F(SwapFiles, TransfersAndTheMappingSeeEachOther) {
  SwapFile const file("values", {directory_}, 8 * swap_alignment);
  auto* const mapped = static_cast<float*>(file.data());
  auto buffer = pages(8);
  float* const memory = aligned(buffer);
  for (int round = 1; round <= 3; ++round) {
    for (std::size_t i = 0; i < 8 * floats_of_page; ++i) mapped[i] = static_cast<float>(i * round);
    file.flush();
    file.read(2 * swap_alignment, memory, 3 * swap_alignment);
    for (std::size_t i = 0; i < 3 * floats_of_page; ++i)
      ASSERT_EQ(memory[i], static_cast<float>((2 * floats_of_page + i) * round));
    std::fill_n(memory, 3 * floats_of_page, -1.0f * round);
    file.write(swap_alignment, memory, 3 * swap_alignment);
    EXPECT_EQ(mapped[floats_of_page - 1], static_cast<float>((floats_of_page - 1) * round));
    EXPECT_EQ(mapped[floats_of_page], -1.0f * round);
    EXPECT_EQ(mapped[4 * floats_of_page - 1], -1.0f * round);
    EXPECT_EQ(mapped[4 * floats_of_page], static_cast<float>(4 * floats_of_page * round));
  }
}

/// Stripes of two directories, of which the last one is incomplete.
TEST_F(SwapFiles, StripeOverDirectories) {
  fs::create_directories(directory_ / "a");
  fs::create_directories(directory_ / "b");
  constexpr std::size_t stripe = std::size_t{4} << 20, bytes = 3 * stripe + 2 * swap_alignment;
  SwapFile const file("values", {directory_ / "a", directory_ / "b"}, bytes);
  auto* const mapped = static_cast<float*>(file.data());
  for (std::size_t i = 0; i < bytes / sizeof(float); ++i) mapped[i] = static_cast<float>(i);
  file.flush();
  auto buffer = pages(bytes / swap_alignment);
  float* const memory = aligned(buffer);
  file.read(0, memory, bytes);
  for (std::size_t i = 0; i < bytes / sizeof(float); ++i)
    ASSERT_EQ(memory[i], static_cast<float>(i));
  EXPECT_EQ(file.first_extent(stripe - 4096, bytes - stripe + 4096).bytes, 4096u);
  EXPECT_EQ(file.first_extent(2 * stripe, stripe).offset, static_cast<off_t>(stripe));
  EXPECT_NE(file.first_extent(0, 1).file, file.first_extent(stripe, 1).file);
  std::fill_n(memory, stripe / sizeof(float), -1.0f);
  file.write(stripe / 2, memory, stripe);
  EXPECT_EQ(mapped[stripe / 8 - 1], static_cast<float>(stripe / 8 - 1));
  EXPECT_EQ(mapped[stripe / 8], -1.0f);
  EXPECT_EQ(mapped[stripe * 3 / 8 - 1], -1.0f);
  EXPECT_EQ(mapped[stripe * 3 / 8], static_cast<float>(stripe * 3 / 8));
}

TEST_F(SwapFiles, TellFilesInMemory) {
  EXPECT_TRUE(is_in_memory("/dev/shm"));
  EXPECT_FALSE(is_in_memory("/proc"));
}

TEST_F(SwapFiles, ErrorsNameTheValuesAndThePlace) {
  try {
    SwapFile const file("exp_avg", {directory_ / "none"}, 1);
    ADD_FAILURE();
  } catch (IoError const& error) {
    EXPECT_NE(std::string(error.what()).find("none: No such file"), std::string::npos)
        << error.what();
  }
  struct rlimit limit {};
  getrlimit(RLIMIT_FSIZE, &limit);
  struct rlimit small = limit;
  small.rlim_cur = swap_alignment;
  std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  try {
    SwapFile const file("exp_avg", {directory_}, 2 * swap_alignment);
    ADD_FAILURE();
  } catch (IoError const& error) {
    EXPECT_NE(std::string(error.what()).find("8.0 KiB for exp_avg in"), std::string::npos)
        << error.what();
  }
  setrlimit(RLIMIT_FSIZE, &limit);
}

}  // namespace
}  // namespace tessera::memory
