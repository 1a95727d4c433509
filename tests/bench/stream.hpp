#pragma once
/// What memory gives: STREAM's triad and copy, a read-modify-write, a fill and a read, those that
/// write with normal stores and with stores past the caches.  McCalpin, "STREAM".

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "interleaved.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/memory/runtime.hpp"

#if defined(__AVX512F__) || defined(__AVX__)
#include <immintrin.h>
#endif

namespace tessera::bench {

/// Stores past the caches where the processor can. @pre 64-byte aligned
inline void stream_16(float* to, float const* values) {
#if defined(__AVX512F__)
  _mm512_stream_ps(to, _mm512_load_ps(values));
#elif defined(__AVX__)
  _mm256_stream_ps(to, _mm256_load_ps(values));
  _mm256_stream_ps(to + 8, _mm256_load_ps(values + 8));
#else
  for (int j = 0; j < 16; ++j) to[j] = values[j];
#endif
}

constexpr std::int64_t tile = 16384;

template <class Rule>
void over_tiles(std::int64_t n, Rule const& rule) {
#pragma omp parallel for schedule(static)
  for (std::int64_t index = 0; index < n / tile; ++index) rule(index);
}

enum class Stores { normal, past_caches };

/// a[i] = value(i)
template <Stores stores, class Value>
void write(std::int64_t n, float* a, Value const& value) {
  over_tiles(n, [&](std::int64_t index) {
    std::int64_t const begin = index * tile, end = begin + tile;
    if constexpr (stores == Stores::normal) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) a[i] = value(i);
    } else {
      for (std::int64_t i = begin; i < end; i += 16) {
        alignas(64) float v[16];
        for (int j = 0; j < 16; ++j) v[j] = value(i + j);
        stream_16(a + i, v);
      }
    }
  });
}

/// A sum of each tile, which the compiler keeps.
inline void read(std::int64_t n, float const* a, float* sums) {
  over_tiles(n, [&](std::int64_t index) {
    float partial[128] = {};
    for (std::int64_t i = index * tile; i < (index + 1) * tile; i += 128)
      for (int j = 0; j < 128; ++j) partial[j] += a[i + j];
    for (int j = 1; j < 128; ++j) partial[0] += partial[j];
    sums[index] = partial[0];
  });
}

/// How a kernel uses memory. The directions have limits of their own, and a result in the place of
/// an operand is read already when it is written.
enum class Traffic { in_place, apart, reads, writes };

/// A kernel or yardstick to time.
struct Metric {
  std::string name;
  double bytes;
  std::function<void()> work;
  Traffic traffic = Traffic::in_place;
};

/// @param a, b, c arrays of @p n elements beyond the caches, 64-byte aligned; a is overwritten
inline std::vector<Metric> yardsticks(std::int64_t n, float* a, float const* b, float const* c) {
  std::vector<Metric> out;
  auto const writing = [&](std::string const& name, int bytes, Traffic traffic, auto value) {
    double const moved = static_cast<double>(bytes) * static_cast<double>(n);
    out.push_back({name, moved, [=] { write<Stores::normal>(n, a, value); }, traffic});
    out.push_back(
        {name + "_past_caches", moved, [=] { write<Stores::past_caches>(n, a, value); }, traffic});
  };
  writing("triad", 12, Traffic::apart, [=](std::int64_t i) { return b[i] + 3.0f * c[i]; });
  writing("copy", 8, Traffic::apart, [=](std::int64_t i) { return b[i]; });
  writing("fill", 4, Traffic::writes, [](std::int64_t) { return 1.0f; });
  writing("read_modify_write", 8, Traffic::in_place, [=](std::int64_t i) { return 0.999f * a[i]; });
  out.push_back({"read", 4.0 * static_cast<double>(n), [=] { read(n, b, a); }, Traffic::reads});
  return out;
}

/// Times the yardsticks and then @p metrics in turns and prints a JSON line for each: `value` is
/// its rate over the best yardstick of its own traffic, `over_best` over the best of all.
inline void report(std::vector<Metric> all, std::vector<Metric> const& metrics, int rounds,
                   std::vector<std::pair<std::string, std::int64_t>> const& fields) {
  std::size_t const yardstick_count = all.size();
  all.insert(all.end(), metrics.begin(), metrics.end());
  std::vector<std::function<void()>> alternatives;
  for (auto const& metric : all) alternatives.push_back(metric.work);
  auto const timings = interleaved(alternatives, rounds);
  auto const rate = [&](std::size_t i) { return all[i].bytes / timings[i].median * 1e-9; };
  auto const best = [&](auto const& counts) {
    double out = 0.0;
    for (std::size_t i = 0; i < yardstick_count; ++i)
      if (counts(all[i].traffic)) out = std::max(out, rate(i));
    return out;
  };
  double const best_of_all = best([](Traffic) { return true; });
  for (std::size_t i = 0; i < all.size(); ++i) {
    double const limit = best([&](Traffic traffic) { return traffic == all[i].traffic; });
    ConfigTree line = ConfigTree::object();
    line.set("metric", all[i].name).set("value", rate(i) / limit).set("num", rate(i));
    line.set("den", limit).set("over_best", rate(i) / best_of_all);
    line.set("seconds", timings[i].median).set("bytes", all[i].bytes);
    line.set("spread", (timings[i].worst - timings[i].best) / timings[i].median);
    line.set("threads", memory::Runtime::threads());
    for (auto const& [name, value] : fields) line.set(name, value);
    std::printf("%s\n", line.dump().c_str());
  }
}

}  // namespace tessera::bench
