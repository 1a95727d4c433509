#pragma once
/// Elapsed time and timestamps.

#include <chrono>
#include <string>

namespace tessera {

using Clock = std::chrono::steady_clock;

/// Seconds from @p start until now.
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The current time in UTC: "2026-01-31T12:00:00Z".
std::string utc_timestamp();

}  // namespace tessera
