#pragma once
/// Waits for a state of another thread or process that has no event to wait for.

#include <chrono>
#include <thread>

namespace tessera {

/// Asks @p condition until it holds. The limit is only for a test that fails.
template <class Condition>
bool becomes_true(Condition const& condition) {
  auto const end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace tessera
