#include "tessera/kernels/elementwise/hash.hpp"

#include <set>

#include "fake_device.hpp"
#include "reference.hpp"

namespace tessera::kernels::test {
namespace {

std::uint64_t hash_of(Queue& q, ConstTensorView in, std::uint64_t first = 0) {
  std::vector<std::uint64_t> parts(hash_parts);
  add_hash(q, parts.data(), in, first);
  q.record().wait("hash", std::chrono::seconds(60));
  return combined_hash(parts.data(), parts.size());
}

TEST(Hash, EveryFlippedBitChangesIt) {
  auto const queue = memory::make_inline_queue("compute");
  for (Dtype const dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
    Array values(dtype, {300});
    values.randomize(1);
    auto* const bytes = static_cast<unsigned char*>(values.data());
    std::set<std::uint64_t> seen{hash_of(*queue, values.view())};
    std::size_t const bits = 8 * values.bytes().size();
    for (std::size_t bit = 0; bit < bits; ++bit) {
      bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
      seen.insert(hash_of(*queue, values.view()));
      bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
    }
    EXPECT_EQ(seen.size(), bits + 1) << name_of(dtype);
  }
}

TEST(Hash, DifferencesAreKept) {
  tessera::test::FakeDevice device;
  auto const inline_queue = memory::make_inline_queue("compute"),
             stream = memory::make_stream_queue("compute");
  for (auto* const queue : {inline_queue.get(), stream.get()}) {
    std::vector<std::uint64_t> a(hash_parts, 7), b(hash_parts, 7), differences(hash_parts);
    auto expected = differences;
    add_differences(*queue, differences.data(), a.data(), b.data());
    queue->record().wait("equal hashes", std::chrono::seconds(60));
    EXPECT_EQ(differences, expected);
    b.back() = 5;
    expected.back() = 2;
    add_differences(*queue, differences.data(), a.data(), b.data());
    add_differences(*queue, differences.data(), a.data(), a.data());
    queue->record().wait("differences", std::chrono::seconds(60));
    EXPECT_EQ(differences, expected) << "an equal pair clears none";
  }
}

TEST(Hash, DependsOnPlaces) {
  auto const queue = memory::make_inline_queue("compute");
  Array values(Dtype::fp32, {2});
  values.set(0, 1.0);
  values.set(1, 2.0);
  auto const before = hash_of(*queue, values.view());
  EXPECT_NE(hash_of(*queue, values.view(), 1), before) << "another first element";
  values.set(0, 2.0);
  values.set(1, 1.0);
  EXPECT_NE(hash_of(*queue, values.view()), before) << "exchanged";
  EXPECT_EQ(hash_of(*queue, Array(Dtype::fp32, {0}).view()),
            hash_of(*queue, Array(Dtype::fp32, {0}).view(), 7))
      << "no elements";
}

TEST(Hash, IsTheSameOnEveryKindOfQueue) {
  tessera::test::FakeDevice device;
  auto const inline_queue = memory::make_inline_queue("compute"),
             worker = memory::make_worker_queue("worker"),
             stream = memory::make_stream_queue("compute");
  for (std::int64_t const n : {1, 127, 128, 129, 5000}) {
    Array values(Dtype::fp32, {n});
    values.randomize(2);
    auto const expected = hash_of(*inline_queue, values.view());
    EXPECT_EQ(hash_of(*worker, values.view()), expected) << n;
    EXPECT_EQ(hash_of(*stream, values.view()), expected) << n;
  }
}

}  // namespace
}  // namespace tessera::kernels::test
