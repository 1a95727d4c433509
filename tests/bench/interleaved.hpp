#pragma once
/// Times alternatives in turns (A B C A B C ...), so that what else the machine does hits all of them alike, and reports medians.

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace tessera::bench {

struct Timing {
  double median = 0.0, best = 0.0, worst = 0.0;  ///< seconds
};

inline double seconds_of(std::function<void()> const& work) {
  auto const begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

inline Timing summary(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2], samples.front(), samples.back()};
}

/// One untimed round, then @p rounds timed ones.
inline std::vector<Timing> interleaved(std::vector<std::function<void()>> const& alternatives, int rounds) {
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
