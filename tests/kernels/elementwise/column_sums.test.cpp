#include "tessera/kernels/elementwise/elementwise.hpp"

#include "elementwise/column_sums_device.hpp"
#include "fake_device.hpp"
#include "fiber_thread_block.hpp"
#include "launch/element_types.hpp"
#include "reference.hpp"

namespace tessera::kernels::test {
namespace {

TESSERA_KERNEL_SUITE(ColumnSums);

struct Problem {
  std::int64_t rows, columns;
  Array dout, dbias;
  Reals sums, added;

  Problem(Dtype from, Dtype to, std::int64_t r, std::int64_t c)
      : rows(r), columns(c), dout(from, {r, c}), dbias(to, {c}) {
    dout.randomize(10);
    dbias.randomize(11);
    sums.resize(static_cast<std::size_t>(c));
    for (std::int64_t i = 0; i < r * c; ++i) sums[static_cast<std::size_t>(i % c)] += dout.get(i);
    added = sums;
    for (std::int64_t i = 0; i < c; ++i) added[static_cast<std::size_t>(i)] += dbias.get(i);
  }
};

Array workspace_for(Queue const& q, std::int64_t rows, std::int64_t columns) {
  Array out(Dtype::fp32, {bias_gradient_workspace(q, rows, columns)});
  for (std::int64_t i = 0; i < out.numel(); ++i) out.set(i, std::nan(""));
  return out;
}

void check(Queue& q, Dtype dtype) {
  for (std::int64_t rows : {1, 3, 130, 517}) {
    for (std::int64_t columns : {1, 7, 63, 65, 768, 2305}) {
      for (Dtype to : {Dtype::fp32, dtype}) {
        Problem p(dtype, to, rows, columns);
        Array again = p.dbias, workspace = workspace_for(q, rows, columns);
        bias_gradient(q, {p.dbias.view()}, p.dout.view(), workspace.view());
        bias_gradient(q, {again.view(), WriteMode::add}, p.dout.view(), workspace.view());
        q.record().wait("column sums", std::chrono::seconds(60));
        expect_close(p.dbias, p.sums, 4e-6);
        expect_close(again, p.added, 4e-6);
      }
    }
  }
}

TEST_P(ColumnSums, OnTheHost) { check(*queue, dtype); }

TEST_P(ColumnSums, OnAStream) {
  tessera::test::FakeDevice device;
  check(*memory::make_stream_queue("compute"), dtype);
}

TEST_P(ColumnSums, OfNoRowsAreZeroOrWhatWasThere) {
  tessera::test::FakeDevice device;
  auto const stream = memory::make_stream_queue("compute");
  for (Queue* q : {queue.get(), stream.get()}) {
    Array dbias(dtype, {40}), none(dtype, {0, 40}), workspace = workspace_for(*q, 0, 40);
    dbias.randomize(1);
    Array const before = dbias;
    bias_gradient(*q, {dbias.view(), WriteMode::add}, none.view(), workspace.view());
    q->record().wait("column sums", std::chrono::seconds(60));
    EXPECT_TRUE(dbias == before);
    bias_gradient(*q, {dbias.view()}, none.view(), workspace.view());
    q->record().wait("column sums", std::chrono::seconds(60));
    EXPECT_EQ(dbias.values(), Reals(40));
  }
}

/// The two launches of a device in chunks of its size.
template <class T, int N>
void run_thread_blocks(Problem& p, FiberOrder order, bool accumulate) {
  std::int64_t const chunk = detail::rows_of_column_tile<N>(p.rows, p.columns),
                     chunks = detail::row_chunks(p.rows, chunk);
  std::vector<float> parts(static_cast<std::size_t>(chunks * p.columns), std::nanf(""));
  detail::ColumnTile<float, T, N, detail::column_tile_threads> const tiles{
      {parts.data()}, p.dout.view().as<T>(), p.rows, p.columns, chunk};
  FiberThreadBlock<detail::column_tile_threads>(order).run(tiles, tiles.teams());
  auto const last = detail::sum_of_column_parts<T, detail::column_parts_threads>(
      {.first = p.dbias.view().as<T>(), .accumulate = accumulate},
      {parts.data(), chunks, p.columns});
  FiberThreadBlock<detail::column_parts_threads>(order).run(last, last.teams());
}

TEST_P(ColumnSums, DeviceRulesInBlocksOfThreads) {
  detail::with_type(dtype, "test", [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr int pack = detail::pack_of<T>;
    for (std::int64_t rows : {1, 3, 70, 1000}) {
      for (std::int64_t columns : {1, 7, 48, 768, 1600}) {
        if (rows * columns > 800000) continue;
        SCOPED_TRACE(::testing::Message() << rows << " rows of " << columns);
        Problem a(dtype, dtype, rows, columns), b = a, c = a;
        bool const whole = columns % pack == 0;
        whole ? run_thread_blocks<T, pack>(a, FiberOrder::ascending, false)
              : run_thread_blocks<T, 1>(a, FiberOrder::ascending, false);
        whole ? run_thread_blocks<T, pack>(b, FiberOrder::descending, false)
              : run_thread_blocks<T, 1>(b, FiberOrder::descending, false);
        run_thread_blocks<T, 1>(c, FiberOrder::ascending, true);
        expect_close(a.dbias, a.sums, 4e-6);
        expect_close(c.dbias, c.added, 4e-6);
        EXPECT_TRUE(a.dbias == b.dbias) << "the order of the threads does not show";
      }
    }
  });
}

TEST(ColumnTiles, CoverTheShapesOfGpt2) {
  for (std::int64_t rows : {8192, 32768}) {
    for (std::int64_t columns : {768, 2304, 3072, 1600, 4800, 6400}) {
      std::int64_t const chunk = detail::rows_of_column_tile<8>(rows, columns),
                         chunks = detail::row_chunks(rows, chunk);
      std::int64_t const tiles = chunks * ((columns + 255) / 256);
      EXPECT_GE(tiles, 700) << "fewer leave multiprocessors without work";
      EXPECT_LE(tiles, 1200);
      EXPECT_LE(4 * chunks, 2 * rows / 16) << "bytes a column of partial sums and of elements";
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::test
