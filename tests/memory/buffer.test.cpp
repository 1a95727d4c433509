#include "tessera/memory/buffer.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/memory/limits.hpp"

namespace tessera::memory {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
std::size_t const page_size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

/// Bytes that the memory tracker has under this name.
std::size_t bytes_named(std::string const& name) {
  for (auto const& e : MemoryTracker::of_process().entries())
    if (e.name == name) return e.bytes;
  return 0;
}

/// An address space limit for a scope.
class AddressSpaceLimit {
 public:
  explicit AddressSpaceLimit(std::size_t more_bytes) {
    getrlimit(RLIMIT_AS, &before_);
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit const limit{pages * page_size + more_bytes, before_.rlim_max};
    setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressSpaceLimit() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

TEST(Buffer, IsZeroedAndAligned) {
  for (std::size_t const bytes : {std::size_t{1}, std::size_t{5000}, 3 * mib + 7}) {
    Buffer const b("test.buffer", Purpose::workspace, bytes);
    EXPECT_EQ(b.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.data()) % (bytes >= 2 * mib ? 2 * mib : 64), 0u);
    auto const* const p = static_cast<char const*>(b.data());
    EXPECT_TRUE(std::all_of(p, p + bytes, [](char c) { return c == 0; }));
  }
}

TEST(Buffer, IsCountedByTheTrackerWhileItLives) {
  auto& tracker = MemoryTracker::of_process();
  std::size_t const before = tracker.current(Purpose::gradients), total = tracker.current_total();
  {
    Buffer const a("test.same_name", Purpose::gradients, 1000),
        b("test.same_name", Purpose::gradients, 500);
    EXPECT_EQ(tracker.current(Purpose::gradients), before + 1500);
    EXPECT_EQ(tracker.current_total(), total + 1500);
    EXPECT_EQ(bytes_named("test.same_name"), 1500u);
  }
  EXPECT_EQ(tracker.current(Purpose::gradients), before);
  EXPECT_EQ(bytes_named("test.same_name"), 0u);
  EXPECT_GE(tracker.peak(Purpose::gradients), before + 1500);
  EXPECT_GE(tracker.peak_total(), total + 1500);
}

TEST(Buffer, MovesLeaveOneOwner) {
  std::size_t const before = MemoryTracker::of_process().current(Purpose::data);
  Buffer a("test.moved", Purpose::data, 100), b;
  void* const data = a.data();
  b = std::move(a);
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(b.data(), data);
  Buffer c(std::move(b));
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(MemoryTracker::of_process().current(Purpose::data), before + 100);
  c = Buffer();
  EXPECT_EQ(MemoryTracker::of_process().current(Purpose::data), before);
}

TEST(Buffer, ViewsStartAtTheirOffset) {
  Buffer const b("test.view", Purpose::workspace, 1024);
  auto const v = b.view(Dtype::fp32, {4, 8}, 128);
  EXPECT_EQ(static_cast<char*>(v.data()) - static_cast<char*>(b.data()), 128);
  EXPECT_EQ(v.numel(), 32);
}

std::size_t resident_pages(Buffer const& buffer) {
  std::vector<unsigned char> pages((buffer.bytes() + page_size - 1) / page_size);
  EXPECT_EQ(mincore(buffer.data(), buffer.bytes(), pages.data()), 0);
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
}

TEST(Buffer, PopulateGivesEveryPageItsPlaceAndKeepsTheContent) {
  for (std::size_t const pages : {3, 2048}) {
    Buffer const buffer("pages", Purpose::workspace, pages * page_size);
    auto* const bytes = static_cast<unsigned char*>(buffer.data());
    bytes[page_size + 5] = 77;
    EXPECT_LT(resident_pages(buffer), pages);
    if (!buffer.populate()) GTEST_SKIP() << "the kernel cannot populate pages";
    EXPECT_EQ(resident_pages(buffer), pages);
    EXPECT_EQ(bytes[page_size + 5], 77);
    EXPECT_EQ(bytes[0], 0);
  }
  EXPECT_TRUE(Buffer().populate());
}

TEST(Buffer, OfNoBytesOwnsNothing) {
  Buffer const b("test.empty", Purpose::workspace, 0);
  EXPECT_EQ(b.data(), nullptr);
}

TEST(OutOfMemory, NamesTheRequestAndTheFreeBytes) {
  try {
    Buffer const b("test.too_much", Purpose::weights, std::size_t{1} << 46);
    FAIL() << "64 TiB were granted";
  } catch (OutOfMemoryError const& error) {
    std::string const text = error.what();
    EXPECT_NE(text.find("64.0 TiB for test.too_much"), std::string::npos) << text;
    EXPECT_NE(text.find(" are left"), std::string::npos) << text;
  }
  EXPECT_EQ(bytes_named("test.too_much"), 0u);
}

TEST(OutOfMemory, KnowsTheAddressSpaceLimit) {
  AddressSpaceLimit const limit(64 * mib);
  try {
    Buffer const b("test.limited", Purpose::weights, 256 * mib);
    FAIL() << "more than the limit was granted";
  } catch (OutOfMemoryError const& error) {
    EXPECT_NE(std::string(error.what()).find("ulimit -v"), std::string::npos) << error.what();
  }
}

TEST(Arena, AllocationsAreAlignedAndApart) {
  Arena arena("test.arena", Purpose::activations);
  auto const a = arena.allocate(Dtype::bf16, {3});
  auto const b = arena.allocate(Dtype::fp32, {5, 7});
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data()) % 64, 0u);
  EXPECT_EQ(static_cast<char*>(b.data()) - static_cast<char*>(a.data()), 64);
  EXPECT_EQ(b.dim(1), 7);
  EXPECT_EQ(arena.peak(), 64u + 192u);
}

TEST(Arena, RollbackGivesTheSameMemoryAgain) {
  Arena arena("test.arena", Purpose::activations);
  (void)arena.allocate(Dtype::fp32, {10});
  auto const mark = arena.mark();
  void* const first = arena.allocate(Dtype::fp32, {1000}).data();
  (void)arena.allocate(Dtype::fp32, {5'000'000});  // in a block of its own
  arena.rollback(mark);
  EXPECT_EQ(arena.mark(), mark);
  EXPECT_EQ(arena.allocate(Dtype::uint8, {1}).data(), first);
}

/// A step's pattern: forward allocates, backward rolls back in between and needs workspaces of
/// other sizes.
std::vector<void*> run_step(Arena& arena) {
  std::vector<void*> out;
  auto const start = arena.mark();
  std::vector<Arena::Mark> marks;
  for (std::int64_t const n : {3'000'000, 100, 1'500'000, 4'000'000, 7}) {
    marks.push_back(arena.mark());
    out.push_back(arena.allocate(Dtype::fp32, {n}).data());
  }
  while (!marks.empty()) {
    auto const inner = arena.mark();
    out.push_back(arena.allocate(Dtype::fp32, {2'500'000}).data());
    arena.rollback(inner);
    arena.rollback(marks.back());
    marks.pop_back();
  }
  arena.rollback(start);
  return out;
}

TEST(Arena, ARepeatedStepAllocatesNothingAndGetsTheSameAddresses) {
  Arena arena("test.arena", Purpose::activations);
  auto const addresses = run_step(arena);
  std::size_t const capacity = arena.capacity(), peak = arena.peak();
  std::size_t const allocated = MemoryTracker::of_process().current(Purpose::activations);
  for (int step = 0; step < 3; ++step) EXPECT_EQ(run_step(arena), addresses);
  EXPECT_EQ(arena.capacity(), capacity);
  EXPECT_EQ(arena.peak(), peak);
  EXPECT_EQ(MemoryTracker::of_process().current(Purpose::activations), allocated);
  EXPECT_LE(peak, capacity);
}

TEST(Arena, LiveAllocationsNeverOverlap) {
  Arena arena("test.arena", Purpose::activations);
  std::vector<TensorView> live;
  for (int i = 0; i < 60; ++i)
    live.push_back(arena.allocate(Dtype::uint8, {(i * 977'777) % 6'000'000 + 1}));
  for (std::size_t i = 0; i < live.size(); ++i)
    std::memset(live[i].data(), static_cast<int>(i + 1), live[i].bytes());
  for (std::size_t i = 0; i < live.size(); ++i) {
    auto const* const p = static_cast<unsigned char const*>(live[i].data());
    EXPECT_TRUE(std::all_of(p, p + live[i].bytes(), [&](unsigned char c) { return c == i + 1; }))
        << i;
  }
}

}  // namespace
}  // namespace tessera::memory
