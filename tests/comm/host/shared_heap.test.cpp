/// Anonymous shared files, their mappings (shared_memory.hpp) and the addresses of shared
/// allocations. Two mappings of one file play the ranks.
#include "host/shared_heap.hpp"

#include <gtest/gtest.h>

#include <utility>

#include "tessera/core/error.hpp"

namespace tessera::comm::detail {
namespace {

constexpr std::size_t bytes = 3 * 4096 + 17;

TEST(SharedMemory, AFileIsOpenedByItsAddressAndSharesItsBytes) {
  auto const file = SharedFile::create(bytes);
  ASSERT_TRUE(file.is_open());
  auto const other = SharedFile::open(file.address());
  ASSERT_TRUE(other.is_open());
  Mapping const written(file, bytes, Access::read_write), read(other, bytes, Access::read);
  ASSERT_NE(written.data(), nullptr);
  ASSERT_NE(read.data(), nullptr);
  EXPECT_NE(written.data(), read.data());
  EXPECT_EQ(read.data()[bytes - 1], std::byte{0}) << "new files are zeroed";
  written.data()[bytes - 1] = std::byte{42};
  EXPECT_EQ(read.data()[bytes - 1], std::byte{42});
}

TEST(SharedMemory, AnotherFileAtTheAddressIsRefused) {
  auto const file = SharedFile::create(bytes);
  auto address = file.address();
  ++address.inode;
  EXPECT_FALSE(SharedFile::open(address).is_open());
  address = file.address();
  ++address.bytes;
  EXPECT_FALSE(SharedFile::open(address).is_open());
}

TEST(SharedMemory, LargeMappingsAreAlignedToHugePagesAndOutliveTheFile) {
  constexpr std::size_t large = (std::size_t{4} << 20) + 4096;
  auto file = SharedFile::create(large);
  Mapping const mapping(file, large, Access::read_write);
  file = SharedFile();
  ASSERT_NE(mapping.data(), nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapping.data()) % (std::size_t{2} << 20), 0u);
  mapping.data()[large - 1] = std::byte{1};
}

SharedAllocation allocation() {
  auto const file = SharedFile::create(bytes);
  SharedAllocation out{0, Mapping(file, bytes, Access::read_write), {}};
  out.peers.emplace_back();  // rank 0: this one
  out.peers.emplace_back(file, bytes, Access::read);
  return out;
}

TEST(SharedHeap, FindsAllocationsByAddressUntilTheirOwnerEnds) {
  auto const heap = std::make_shared<SharedHeap>();
  auto& tracker = memory::MemoryTracker::of_process();
  auto const before = tracker.current(memory::Purpose::communication);
  auto first = heap->add(allocation(), "first", memory::Purpose::communication);
  auto const second = heap->add(allocation(), "second", memory::Purpose::communication);
  EXPECT_EQ(tracker.current(memory::Purpose::communication), before + 2 * bytes);

  auto* const data = static_cast<std::byte*>(first.get());
  auto const position = heap->find(data + 100);
  ASSERT_TRUE(position);
  EXPECT_EQ(position->number, 1);
  EXPECT_EQ(position->offset_bytes, 100u);
  EXPECT_EQ(heap->find(static_cast<std::byte*>(second.get()))->number, 2);
  EXPECT_FALSE(heap->find(data + bytes));
  std::byte const elsewhere{};
  EXPECT_FALSE(heap->find(&elsewhere));

  data[100] = std::byte{7};
  EXPECT_EQ(heap->peer_address(0, *position), data + 100);
  EXPECT_NE(heap->peer_address(1, *position), data + 100);
  EXPECT_EQ(*heap->peer_address(1, *position), std::byte{7});

  first.reset();
  EXPECT_FALSE(heap->find(data + 100));
  EXPECT_THROW((void)heap->peer_address(1, *position), InternalError);
  EXPECT_EQ(tracker.current(memory::Purpose::communication), before + bytes);
}

}  // namespace
}  // namespace tessera::comm::detail
