#pragma once
/// Starts and ends the device runtime (Kokkos) of the process.

#include <string>

namespace tessera::memory {

struct RuntimeOptions {
  int threads =
      0;  ///< host threads for kernels; 0: OMP_NUM_THREADS or what the affinity mask allows
  int device = -1;  ///< device ordinal; -1: host only, no device is touched
};

/// Exactly one per process, in main, before the first kernel. Safe to destroy in any order with
/// respect to queues.
class Runtime {
 public:
  /// @throws ConfigError when the device is not there or needs another architecture than this
  /// build's
  explicit Runtime(RuntimeOptions const& options);
  ~Runtime();
  Runtime(Runtime const&) = delete;
  Runtime& operator=(Runtime const&) = delete;
  static int threads();
  static int device();                  ///< ordinal; -1: host only
  static std::string kokkos_version();  ///< "5.0.2 (OpenMP, Serial)"
  static std::string description();     ///< "OpenMP, 2 threads" for logs and --version
};

}  // namespace tessera::memory
