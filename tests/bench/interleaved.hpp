#pragma once
/// Times alternatives in turns (A B C A B C ...), so that what else the machine does hits all of
/// them alike, and reports medians.

#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace tessera::bench {

struct Timing {
  double median = 0.0, best = 0.0, worst = 0.0;  ///< seconds
};

/// Wall time; or with TESSERA_BENCH_CLOCK=cpu processor time, which with one thread is fair on a
/// machine that others use too.
inline double now() {
  static char const* const wanted = std::getenv("TESSERA_BENCH_CLOCK");
  static bool const cpu = wanted && std::string(wanted) == "cpu";
  timespec t{};
  clock_gettime(cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

inline double seconds_of(std::function<void()> const& work) {
  double const begin = now();
  work();
  return now() - begin;
}

inline Timing summary(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2], samples.front(), samples.back()};
}

/// One untimed round, then @p rounds timed ones.
inline std::vector<Timing> interleaved(std::vector<std::function<void()>> const& alternatives,
                                       int rounds) {
  std::vector<std::vector<double>> samples(alternatives.size());
  for (int r = 0; r <= rounds; ++r)
    for (std::size_t i = 0; i < alternatives.size(); ++i) {
      double const t = seconds_of(alternatives[i]);
      if (r > 0) samples[i].push_back(t);
    }
  std::vector<Timing> out;
  for (auto& s : samples) out.push_back(summary(std::move(s)));
  return out;
}

}  // namespace tessera::bench
