#include "tessera/memory/runtime.hpp"

#include <Kokkos_Core.hpp>
#include <cstdlib>

#include "tessera/core/affinity.hpp"
#include "tessera/core/error.hpp"

namespace tessera::memory {
namespace {

int default_threads() {
  if (char const* wanted = std::getenv("OMP_NUM_THREADS")) {
    int const n = std::atoi(wanted);
    if (n > 0) return n;
  }
  return static_cast<int>(allowed_cores().size());
}

}  // namespace

Runtime::Runtime(RuntimeOptions const& options) {
  TESSERA_VALIDATE(!Kokkos::is_initialized(), InternalError, "the device runtime is already started");
  Kokkos::InitializationSettings settings;
  settings.set_num_threads(options.threads > 0 ? options.threads : default_threads());
  settings.set_disable_warnings(true);
  if (options.device >= 0) settings.set_device_id(options.device);
  Kokkos::initialize(settings);
}

Runtime::~Runtime() {
  if (Kokkos::is_initialized() && !Kokkos::is_finalized()) Kokkos::finalize();
}

int Runtime::threads() { return Kokkos::DefaultHostExecutionSpace().concurrency(); }

std::string Runtime::kokkos_version() {
  std::string backends;
#ifdef KOKKOS_ENABLE_CUDA
  backends += "CUDA, ";
#endif
#ifdef KOKKOS_ENABLE_OPENMP
  backends += "OpenMP, ";
#endif
  return concat(KOKKOS_VERSION_MAJOR, ".", KOKKOS_VERSION_MINOR, ".", KOKKOS_VERSION_PATCH, " (", backends, "Serial)");
}

std::string Runtime::description() {
  return concat(Kokkos::DefaultHostExecutionSpace::name(), ", ", threads(), threads() == 1 ? " thread" : " threads");
}

}  // namespace tessera::memory
