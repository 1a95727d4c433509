#include "base/simulated_network.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "tessera/core/error.hpp"

namespace tessera::comm::detail {

SimulatedNetwork SimulatedNetwork::from_text(std::string const& text) {
  double latency_us = 0.0, gigabytes = 0.0;
  int read = 0;
  bool const has_both =
      std::sscanf(text.c_str(), "%lf,%lf%n", &latency_us, &gigabytes, &read) == 2 &&
      static_cast<std::size_t>(read) == text.size();
  TESSERA_VALIDATE(has_both && latency_us >= 0.0 && latency_us <= 1e6 && gigabytes > 0.0 &&
                       std::isfinite(gigabytes),
                   ConfigError, "TESSERA_SIMULATED_NETWORK is '", text,
                   "'; use LATENCY_US,GB_PER_S, such as 20,1: a latency from 0 to 1000000 us and a "
                   "positive bandwidth per node");
  return {1e-6 * latency_us, 1e9 * gigabytes};
}

std::optional<SimulatedNetwork> SimulatedNetwork::of_environment() {
  char const* const text = std::getenv("TESSERA_SIMULATED_NETWORK");
  if (!text) return {};
  return from_text(text);
}

std::chrono::nanoseconds SimulatedNetwork::delay(int messages, std::size_t bytes) const {
  double const seconds = messages * latency_seconds + static_cast<double>(bytes) / bytes_per_second;
  return std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * seconds));
}

}  // namespace tessera::comm::detail
