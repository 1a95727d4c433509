#pragma once
/// Initializes and finalizes Kokkos, and selects the device of the process.

#include <string>

namespace tessera::memory {

/// What the Runtime of a process uses.
struct RuntimeOptions {
  int threads = 0;  ///< host threads for kernels; 0: OMP_NUM_THREADS, else the cores of the
                    ///< affinity mask
  int device = -1;  ///< device ordinal; -1: host only, no device call is made
};

/// Exactly one per process, made in main before the first kernel. Queues may be destroyed before or
/// after it.
class Runtime {
 public:
  /// @throws ConfigError when the device does not exist or this build has no kernels for its
  /// architecture
  explicit Runtime(RuntimeOptions const& options);
  ~Runtime();
  Runtime(Runtime const&) = delete;
  Runtime& operator=(Runtime const&) = delete;
  static int threads();
  /// Host threads of a rank that starts here, before it has initialized the runtime.
  static int default_threads();
  static int device();                  ///< ordinal; -1: host only
  static std::string kokkos_version();  ///< "5.0.2 (OpenMP, Serial)"
  static std::string description();     ///< "OpenMP, 2 threads" for logs and --version
};

}  // namespace tessera::memory
