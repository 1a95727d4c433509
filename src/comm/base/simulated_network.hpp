#pragma once
/// A network between simulated nodes, for tests and benchmarks on one machine: an operation takes
/// longer by what its messages to other nodes would take.

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

namespace tessera::comm::detail {

struct SimulatedNetwork {
  double latency_seconds = 0.0;   ///< per message
  double bytes_per_second = 1.0;  ///< of a node, shared by its ranks

  /// Of the text "LATENCY_US,GB_PER_S". @throws ConfigError
  static SimulatedNetwork from_text(std::string const& text);
  /// Of the variable TESSERA_SIMULATED_NETWORK; none where it is not set.
  static std::optional<SimulatedNetwork> of_environment();

  /// A rank's messages to other nodes follow each other. @param bytes of all ranks of the node
  std::chrono::nanoseconds delay(int messages, std::size_t bytes) const;
};

}  // namespace tessera::comm::detail
