/// Element-wise kernels against memory in the same process; one JSON line a metric.
///
///   OMP_NUM_THREADS=2 build/host/bin/bench.flat [elements = 50000000] [rounds = 7]
///
/// value = (bytes the kernel must move / its time) / the rate of the best yardstick with the same
/// traffic: read-modify-write for a result in the place of an operand, triad and copy for one apart
/// from them, fill; each with normal stores and with stores past the caches. Seconds are medians of
/// interleaved rounds.
#include "stream.hpp"
#include "tessera/kernels/elementwise.hpp"
#include "tessera/memory/buffer.hpp"

namespace {

using namespace tessera;
using bench::Metric;
using bench::Traffic;
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

/// With the bytes per element.
std::vector<Metric> kernels_of(Arrays const& x, memory::Queue& q) {
  TensorView const a = x.wide(x.a), b = x.wide(x.b), c = x.wide(x.c), h = x.narrow(x.h),
                   k = x.narrow(x.k);
  return {
      {"fill_fp32", 4, [&q, a] { kernels::fill(q, a, 0.5f); }, Traffic::writes},
      {"fill_bf16", 2, [&q, h] { kernels::fill(q, h, 0.5f); }, Traffic::writes},
      {"cast_fp32_to_bf16", 6, [&q, h, b] { kernels::cast(q, h, b); }, Traffic::apart},
      {"cast_bf16_to_fp32", 6, [&q, a, h] { kernels::cast(q, a, h); }, Traffic::apart},
      {"cast_fp32", 8, [&q, a, b] { kernels::cast(q, a, b); }, Traffic::apart},
      {"scale_fp32", 8, [&q, a] { kernels::scale(q, a, 0.999f); }},
      {"scale_bf16", 4, [&q, h] { kernels::scale(q, h, 0.999f); }},
      {"add_fp32", 12, [&q, a, b] { kernels::add(q, a, b); }},
      {"add_bf16_to_fp32", 10, [&q, a, h] { kernels::add(q, a, h); }},
      {"residual_add_fp32", 12, [&q, a, b, c] { kernels::residual_add(q, a, b, c, {}); },
       Traffic::apart},
      {"residual_add_bf16", 6, [&q, h, k] { kernels::residual_add(q, k, h, k, {}); }},
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
  auto metrics = kernels_of(x, *q);
  for (auto& metric : metrics) metric.bytes *= static_cast<double>(n);
  bench::report(bench::yardsticks(n, x.a, x.b, x.c), metrics, argc > 2 ? std::atoi(argv[2]) : 7,
                {{"elements", n}});
  return 0;
}
