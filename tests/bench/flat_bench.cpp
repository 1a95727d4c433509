/// Element-wise kernels against memory in the same process; one JSON line a metric.
///
///   OMP_NUM_THREADS=2 build/host/bin/bench.flat [elements = 50000000] [rounds = 7]
///
/// value = (bytes the kernel must move / its time) / the rate of the best plain loop over the same
/// arrays, with normal stores and with stores past the caches, with and without prefetching;
/// over_best: the same over the best of triad, copy and read-modify-write. Seconds are medians of
/// interleaved rounds.
#include "stream.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/memory/buffer.hpp"

namespace {

using namespace tessera;
using bench::Metric;
using bench::Streams;
using bench::sweep_of;
using memory::TensorView;

/// Arrays that the kernels share; the two of 16 bits have their own memory.
struct Arrays {
  explicit Arrays(std::int64_t numel) : n(numel) {
    for (float** array : {&a, &b, &c}) *array = static_cast<float*>(make(4));
    for (void** array : {&h, &k}) *array = make(2);
    bench::over_tiles(n, [this](std::int64_t index) {
      for (std::int64_t i = index * bench::tile; i < (index + 1) * bench::tile; ++i)
        a[i] = b[i] = c[i] = static_cast<float>(i % 1009) * 1e-3f;
    });
  }
  void* make(std::size_t size) {
    owned.emplace_back("benchmark array", memory::Purpose::workspace,
                       static_cast<std::size_t>(n) * size);
    return owned.back().data();
  }
  TensorView wide(float* data) const { return {data, Dtype::fp32, {n}}; }
  TensorView narrow(void* data) const { return {data, Dtype::bf16, {n}}; }

  std::int64_t n;
  std::vector<memory::Buffer> owned;
  float *a = nullptr, *b = nullptr, *c = nullptr;
  void *h = nullptr, *k = nullptr;
};

/// With the arrays that they move.
std::vector<Metric> kernels_of(Arrays const& x, memory::Queue& q) {
  TensorView const a = x.wide(x.a), b = x.wide(x.b), c = x.wide(x.c), h = x.narrow(x.h),
                   k = x.narrow(x.k);
  return {
      {"fill_fp32", {sweep_of<Streams{.written4 = 1}>()}, [&q, a] { kernels::fill(q, a, 0.5f); }},
      {"fill_bf16", {sweep_of<Streams{.written2 = 1}>()}, [&q, h] { kernels::fill(q, h, 0.5f); }},
      {"cast_fp32_to_bf16",
       {sweep_of<Streams{.read4 = 1, .written2 = 1}>()},
       [&q, h, b] { kernels::cast(q, h, b); }},
      {"cast_bf16_to_fp32",
       {sweep_of<Streams{.written4 = 1, .read2 = 1}>()},
       [&q, a, h] { kernels::cast(q, a, h); }},
      {"cast_fp32", {sweep_of<bench::copy>()}, [&q, a, b] { kernels::cast(q, a, b); }},
      {"scale_fp32",
       {sweep_of<bench::read_modify_write>()},
       [&q, a] { kernels::scale(q, a, 0.999f); }},
      {"scale_bf16",
       {sweep_of<Streams{.updated2 = 1}>()},
       [&q, h] { kernels::scale(q, h, 0.999f); }},
      {"add_fp32",
       {sweep_of<Streams{.updated4 = 1, .read4 = 1}>()},
       [&q, a, b] { kernels::add(q, a, b); }},
      {"add_bf16_to_fp32",
       {sweep_of<Streams{.updated4 = 1, .read2 = 1}>()},
       [&q, a, h] { kernels::add(q, a, h); }},
      {"residual_add_fp32",
       {sweep_of<bench::triad>()},
       [&q, a, b, c] { kernels::residual_add(q, a, b, c, {}); }},
      {"residual_add_bf16",
       {sweep_of<Streams{.updated2 = 1, .read2 = 1}>()},
       [&q, h, k] { kernels::residual_add(q, k, h, k, {}); }},
  };
}

}  // namespace

int main(int argc, char** argv) {
  std::int64_t const n = (argc > 1 ? static_cast<std::int64_t>(std::atof(argv[1])) : 50'000'000) /
                         bench::tile * bench::tile;
  memory::Runtime const runtime{{}};
  auto const q = memory::make_inline_queue("compute");
  Arrays const x(n);
  kernels::fill(*q, x.narrow(x.h), 0.25f);
  kernels::fill(*q, x.narrow(x.k), 0.5f);
  bench::report(n, kernels_of(x, *q), argc > 2 ? std::atoi(argv[2]) : 7, {{"elements", n}});
  return 0;
}
