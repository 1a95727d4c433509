#include "tessera/memory/swap_transfers.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "faults.hpp"
#include "tessera/core/error.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::memory {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t floats_of_page = swap_alignment / sizeof(float);
using enum SwapOptions::Submit;

class SwapTransfersTest : public ::testing::Test {
 protected:
  SwapTransfersTest() : directory_(fs::path(::testing::TempDir()) / "swap_transfers") {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  ~SwapTransfersTest() override { tessera_set_faults(""); }
  /// Aligned memory of @p pages pages.
  static float* aligned(Buffer& buffer) {
    auto const at = reinterpret_cast<std::uintptr_t>(buffer.data());
    return reinterpret_cast<float*>((at + swap_alignment - 1) / swap_alignment * swap_alignment);
  }
  static Buffer pages(std::size_t count) {
    return {"pages", Purpose::workspace, (count + 1) * swap_alignment};
  }
  /// Writes and reads back with @p options.
  void expect_values_back(SwapOptions const& options) {
    constexpr std::size_t count = 37;
    SwapFile const file("values", {directory_}, count * swap_alignment);
    SwapTransfers transfers(options);
    auto out = pages(count), in = pages(count);
    float *const from = aligned(out), *const to = aligned(in);
    for (std::size_t i = 0; i < count * floats_of_page; ++i) from[i] = static_cast<float>(i);
    auto const written = transfers.write(file, 0, from, count * swap_alignment, {});
    auto const read = transfers.read(file, 0, to, count * swap_alignment, written);
    auto const queue = make_inline_queue("compute");
    order_before(*queue, read);
    transfers.wait();
    EXPECT_EQ(std::memcmp(from, to, count * swap_alignment), 0);
  }
  fs::path directory_;
};

/// Every setting of the block "aio" moves the same bytes.
TEST_F(SwapTransfersTest, SettingsChangeNoByte) {
  for (int depth : {1, 2, 8, 64})
    for (int parallelism : {1, 3})
      for (auto submit : {batch, single})
        for (auto events : {SwapOptions::Events::overlap, SwapOptions::Events::wait})
          expect_values_back({.block_size = swap_alignment,
                              .queue_depth = depth,
                              .parallelism = parallelism,
                              .submit = submit,
                              .events = events});
}

TEST_F(SwapTransfersTest, JoinedEventsHappenAfterAll) {
  auto const a = make_worker_queue("a"), b = make_worker_queue("b");
  b->submit([] { throw IoError("the drive is gone"); });
  auto const both = joined({a->record(), b->record(), Event()});
  EXPECT_TRUE(both.wait_for(std::chrono::seconds(60)));
  EXPECT_TRUE(both.done());
  EXPECT_THROW(both.wait("both", std::chrono::seconds(1)), IoError);
  EXPECT_TRUE(joined({}).done());
}

/// A thread that has failed reports it to whoever waits, and to wait().
TEST_F(SwapTransfersTest, ATransferThatFailsIsReported) {
  SwapFile file("exp_avg", {directory_}, 2 * swap_alignment);
  file.label(0, "wte");
  file.label(swap_alignment, "h.0");
  SwapTransfers transfers({.block_size = swap_alignment, .queue_depth = 1});
  // the system refuses an address without memory
  auto* const nowhere = reinterpret_cast<void*>(swap_alignment);
  auto const pending = transfers.write(file, swap_alignment, nowhere, swap_alignment, {});
  EXPECT_THROW(pending[0].wait("the write", std::chrono::seconds(5)), IoError);
  try {
    transfers.wait();
    ADD_FAILURE();
  } catch (IoError const& error) {
    EXPECT_NE(std::string(error.what()).find("cannot write 4.0 KiB of exp_avg of h.0 at byte 4096"),
              std::string::npos)
        << error.what();
  }
}

/// 200 drawn faults, with io_uring and with threads: transfers that fail give one error that names
/// the values; short, slow and reordered ones give all bytes.
TEST_F(SwapTransfersTest, DrawnFaultsFailOrChangeNothing) {
  std::mt19937 dice(20251122);
  constexpr std::size_t count = 24;
  auto out = pages(count), in = pages(count);
  float *const from = aligned(out), *const to = aligned(in);
  int failed = 0;
  bool const system_has_ring = SwapTransfers(SwapOptions{}).method().is_uring;
  for (int point = 0; point < 200; ++point) {
    char const* const actions[] = {"EIO", "ENOSPC", "short", "slow", "reorder"};
    std::string const action = actions[dice() % 5], call = dice() % 2 ? "read" : "write";
    bool const has_ring = dice() % 4 != 0;
    std::string const rule =
        concat("call=", call, ",path=swap_transfers,nth=", 1 + dice() % 6,
               ",times=", 1 + dice() % 4, ",do=", action, has_ring ? "" : ";call=ring,do=EINVAL");
    SCOPED_TRACE(concat("point ", point, ": ", rule));
    for (std::size_t i = 0; i < count * floats_of_page; ++i)
      from[i] = static_cast<float>(i + static_cast<std::size_t>(point));
    SwapFile file("exp_avg", {directory_}, count * swap_alignment);
    file.label(0, "h.0");
    tessera_set_faults(rule.c_str());
    bool const may_fail = action[0] == 'E';
    std::string message;
    {
      SwapTransfers transfers({.block_size = 2 * swap_alignment, .queue_depth = 3});
      auto const written = transfers.write(file, 0, from, count * swap_alignment, {});
      auto const read = transfers.read(file, 0, to, count * swap_alignment, written);
      try {
        order_before(*make_inline_queue("compute"), read);
        transfers.wait();
      } catch (IoError const& error) {
        message = error.what();
      }
      EXPECT_EQ(transfers.method().is_uring, has_ring && system_has_ring);
    }
    EXPECT_GT(tessera_faults_met(), 0);
    tessera_set_faults("");
    EXPECT_EQ(!message.empty(), may_fail) << message;
    if (may_fail) {
      ++failed;
      EXPECT_NE(message.find(concat("cannot ", call, " 8.0 KiB of exp_avg of h.0 at byte ")),
                std::string::npos)
          << message;
      EXPECT_NE(message.find("give another nvme_path"), std::string::npos) << message;
    } else {
      EXPECT_EQ(std::memcmp(from, to, count * swap_alignment), 0);
    }
  }
  EXPECT_GT(failed, 40);
}

}  // namespace
}  // namespace tessera::memory
