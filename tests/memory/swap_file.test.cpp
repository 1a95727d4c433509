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
  SwapFile const file("values", directory_, 10000);
  EXPECT_EQ(file.bytes(), 3 * swap_alignment);
  EXPECT_TRUE(fs::is_empty(directory_));
  EXPECT_EQ(static_cast<float*>(file.data())[2500], 0.0f);
}

TEST_F(SwapFiles, TransfersAndTheMappingSeeEachOther) {
  SwapFile const file("values", directory_, 8 * swap_alignment);
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

TEST_F(SwapFiles, BlocksOfAllThreadsAreInPlace) {
  constexpr std::size_t count = 37;
  SwapFile const file("values", directory_, count * swap_alignment);
  SwapTransfers transfers({directory_, 2 * swap_alignment, 3});
  auto out = pages(count), in = pages(count);
  float *const from = aligned(out), *const to = aligned(in);
  for (std::size_t i = 0; i < count * floats_of_page; ++i) from[i] = static_cast<float>(i);
  auto const written = transfers.write(file, 0, from, count * swap_alignment, {});
  auto const read = transfers.read(file, 0, to, count * swap_alignment, written);
  EXPECT_EQ(written.size(), 3u);
  auto const queue = make_inline_queue("compute");
  order_before(*queue, read);
  transfers.wait();
  EXPECT_EQ(std::memcmp(from, to, count * swap_alignment), 0);
}

TEST_F(SwapFiles, ErrorsNameTheValuesAndThePlace) {
  try {
    SwapFile const file("exp_avg", directory_ / "none", 1);
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
    SwapFile const file("exp_avg", directory_, 2 * swap_alignment);
    ADD_FAILURE();
  } catch (IoError const& error) {
    EXPECT_NE(std::string(error.what()).find("8.0 KiB for exp_avg in"), std::string::npos)
        << error.what();
  }
  setrlimit(RLIMIT_FSIZE, &limit);
}

/// A thread that has failed reports it to whoever waits, and to wait().
TEST_F(SwapFiles, ATransferThatFailsIsReported) {
  SwapFile const file("exp_avg", directory_, 2 * swap_alignment);
  SwapTransfers transfers({directory_, swap_alignment, 1});
  // the system refuses an address without memory
  auto* const nowhere = reinterpret_cast<void*>(swap_alignment);
  auto const pending = transfers.write(file, swap_alignment, nowhere, swap_alignment, {});
  EXPECT_THROW(pending[0].wait("the write", std::chrono::seconds(5)), IoError);
  try {
    transfers.wait();
    ADD_FAILURE();
  } catch (IoError const& error) {
    EXPECT_NE(std::string(error.what()).find("cannot write 4.0 KiB of exp_avg at byte 4096"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tessera::memory
