#include "tessera/kernels/attention/key_value_cache.hpp"

#include "fake_device.hpp"
#include "reference.hpp"

namespace tessera::kernels::test {
namespace {

/// New rows inside larger ones, and a cache with room for `capacity` positions.
void check(Queue& q, CacheShape const& shape, std::vector<int> const& lengths_of_rows,
           bool by_head) {
  SCOPED_TRACE(::testing::Message()
               << shape.queries << " positions, " << shape.heads << " heads of " << shape.head_dim);
  std::int64_t const capacity = 21, row = shape.heads * shape.head_dim + 16, first = 8;
  Array rows(shape.dtype, {shape.batch, shape.queries, row}),
      cache(shape.dtype, {shape.batch, capacity, shape.heads, shape.head_dim}),
      lengths(Dtype::int32, {shape.batch});
  rows.randomize(1);
  cache.randomize(2);
  CacheView view{cache.data(), capacity * shape.heads * shape.head_dim,
                 std::int64_t{shape.heads} * shape.head_dim, 0};
  if (by_head) {
    view.position_stride = shape.head_dim;
    view.head_stride = capacity * shape.head_dim;
  }
  Reals want = cache.values();
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    int const length = lengths_of_rows[static_cast<std::size_t>(b)];
    lengths.set(b, length);
    for (std::int64_t i = 0; i < shape.queries; ++i)
      for (int h = 0; h < shape.heads; ++h)
        for (int c = 0; c < shape.head_dim; ++c) {
          std::int64_t const s = length - shape.queries + i,
                             head = by_head ? view.head_stride : shape.head_dim;
          want[static_cast<std::size_t>(b * view.batch_stride + s * view.position_stride +
                                        h * head + c)] =
              rows.get((b * shape.queries + i) * row + first + h * shape.head_dim + c);
        }
  }
  void* const begin = static_cast<std::byte*>(rows.data()) + first * size_of(shape.dtype);
  append_to_cache(q, shape, view, {begin, row}, lengths.view());
  q.record().wait("the cache", std::chrono::seconds(60));
  EXPECT_EQ(cache.values(), want);
}

void check_all(Queue& q, Dtype dtype) {
  for (bool by_head : {false, true})
    for (int head_dim : {3, 8, 64})
      for (std::int64_t queries : {1, 5})
        check(q, {dtype, 3, queries, 2, head_dim}, {5, 21, 13}, by_head);
}

TESSERA_KERNEL_SUITE(KeyValueCache);

TEST_P(KeyValueCache, TakesNewPositions) { check_all(*queue, dtype); }

TEST_P(KeyValueCache, TakesNewPositionsOnAStream) {
  tessera::test::FakeDevice device;
  check_all(*memory::make_stream_queue("compute"), dtype);
}

}  // namespace
}  // namespace tessera::kernels::test
