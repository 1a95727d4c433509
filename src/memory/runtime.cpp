#include "tessera/memory/runtime.hpp"

#include <Kokkos_Core.hpp>
#ifdef KOKKOS_ENABLE_CUDA
#define KOKKOS_IMPL_PUBLIC_INCLUDE
#include <impl/Kokkos_ExecSpaceManager.hpp>
#undef KOKKOS_IMPL_PUBLIC_INCLUDE
#endif
#include <cstdlib>
#include <memory>

#include "detail/architectures.hpp"
#include "detail/cuda_api.hpp"
#include "detail/device_api.hpp"
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

#ifdef KOKKOS_ENABLE_CUDA
/// Stands in for Kokkos' CUDA space in a process that runs on the host: that space's start ends the
/// process when there is no device, and takes memory on one that others use.
struct NoDeviceSpace final : Kokkos::Impl::ExecSpaceBase {
  void initialize(Kokkos::InitializationSettings const&) override {}
  void finalize() override {}
  void static_fence(std::string const&) override {}
  void print_configuration(std::ostream&, bool) override {}
};

/// The key under which Kokkos registers the space, see initialize_space_factory<Cuda> in its
/// source.
void leave_out_cuda() {
  Kokkos::Impl::ExecSpaceManager::get_instance().register_space_factory(
      "150_Cuda", std::make_unique<NoDeviceSpace>());
}
#endif

int device_of_runtime = -1;

/// False also for a device runtime that stands in for CUDA's.
[[maybe_unused]] bool uses_cuda(int ordinal) {
  return ordinal >= 0 && detail::cuda_api() && &detail::device_api() == detail::cuda_api();
}

/// A device that cannot run this build's kernels would be reported by an abort; here it is an
/// error.
void use_device(int ordinal) {
  auto& api = detail::device_api();
  auto const found = api.find();
  TESSERA_VALIDATE(ordinal < found.count, ConfigError, "device ", ordinal,
                   " was asked for, and this process sees ", found.count, " devices",
                   found.reason.empty() ? "" : " (" + found.reason + ")",
                   "; look at CUDA_VISIBLE_DEVICES and what the job was given");
#ifdef TESSERA_CUDA_ARCHITECTURES
  if (uses_cuda(ordinal))
    detail::require_architecture(api.describe(ordinal), TESSERA_CUDA_ARCHITECTURES);
#endif
  api.use(ordinal);
  device_of_runtime = ordinal;
}

}  // namespace

Runtime::Runtime(RuntimeOptions const& options) {
  TESSERA_VALIDATE(!Kokkos::is_initialized(), InternalError,
                   "the device runtime is already started");
  Kokkos::InitializationSettings settings;
  settings.set_num_threads(options.threads > 0 ? options.threads : default_threads());
  settings.set_disable_warnings(true);
  if (options.device >= 0) use_device(options.device);
#ifdef KOKKOS_ENABLE_CUDA
  if (uses_cuda(options.device))
    settings.set_device_id(options.device);
  else
    leave_out_cuda();
#endif
  Kokkos::initialize(settings);
}

Runtime::~Runtime() {
  device_of_runtime = -1;
  if (Kokkos::is_initialized() && !Kokkos::is_finalized()) Kokkos::finalize();
}

int Runtime::device() { return device_of_runtime; }

int Runtime::threads() { return Kokkos::DefaultHostExecutionSpace().concurrency(); }

std::string Runtime::kokkos_version() {
  std::string backends;
#ifdef KOKKOS_ENABLE_CUDA
  backends += "CUDA, ";
#endif
#ifdef KOKKOS_ENABLE_OPENMP
  backends += "OpenMP, ";
#endif
  return concat(KOKKOS_VERSION_MAJOR, ".", KOKKOS_VERSION_MINOR, ".", KOKKOS_VERSION_PATCH, " (",
                backends, "Serial)");
}

std::string Runtime::description() {
  std::string const host = concat(Kokkos::DefaultHostExecutionSpace::name(), ", ", threads(),
                                  threads() == 1 ? " thread" : " threads");
  return device() < 0
             ? host
             : concat("device ", device(), " (", describe_device(device()).name, "), ", host);
}

}  // namespace tessera::memory
