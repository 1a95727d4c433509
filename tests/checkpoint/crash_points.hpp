#pragma once
/// Which of many points of failure a run of a suite tries: TESSERA_CRASH_POINTS of each case (0:
/// every one), chosen by TESSERA_CRASH_SEED.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tessera/core/error.hpp"

namespace tessera::test {

struct CrashPoints {
  unsigned seed = 1;
  std::size_t most = 60;

  CrashPoints() {
    if (char const* text = std::getenv("TESSERA_CRASH_SEED"))
      seed = static_cast<unsigned>(std::strtoul(text, nullptr, 10));
    if (char const* text = std::getenv("TESSERA_CRASH_POINTS"))
      most = std::strtoul(text, nullptr, 10);
  }
  /// Chooses up to `most` of the points 1 ... @p count, in ascending order.
  std::vector<int> choose(int count) const {
    std::vector<int> all(static_cast<std::size_t>(count));
    std::iota(all.begin(), all.end(), 1);
    if (most == 0 || all.size() <= most) return all;
    std::shuffle(all.begin(), all.end(), std::mt19937(seed));
    all.resize(most);
    std::sort(all.begin(), all.end());
    return all;
  }
  /// For messages: how to try this again.
  std::string again() const {
    return concat("; again with TESSERA_CRASH_SEED=", seed, " TESSERA_CRASH_POINTS=", most);
  }
};

/// Points by the thousand want a file system that flushes immediately.
inline void use_memory_for_scratch() {
  std::error_code failed;
  if (std::filesystem::is_directory("/dev/shm", failed) && ::access("/dev/shm", W_OK) == 0)
    ::setenv("TMPDIR", "/dev/shm", 0);
}

}  // namespace tessera::test
