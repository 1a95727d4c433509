#pragma once
/// Measures one kernel for KernelTimes, and notes the route of one for kernels::used_routes().

#include "tessera/memory/device.hpp"

namespace tessera::kernels::detail {

/// While it lives, its thread computes or enqueues @p kernel on @p q. Of nested ones only the
/// outermost counts. Without a KernelTimes it costs a load.
class Timed {
 public:
  Timed(memory::Queue& q, char const* kernel) {
    if (measuring()) begin(q, kernel);
  }
  ~Timed() {
    if (queue_) end();
  }
  Timed(Timed const&) = delete;

 private:
  static bool measuring();
  void begin(memory::Queue& q, char const* kernel);
  void end();

  memory::Queue* queue_ = nullptr;  ///< null: not measured
  char const* kernel_ = nullptr;
  double start_ = 0.0;                       ///< host: seconds of the clock
  memory::StreamMark start_mark_ = nullptr;  ///< GPU
};

/// Counts a route by which a computation was done. Both texts are literals. Thread-safe; some tens
/// of nanoseconds.
void note_route(char const* computation, char const* route);

}  // namespace tessera::kernels::detail
