#include "tessera/memory/runtime.hpp"

#include <Kokkos_Core.hpp>
#define KOKKOS_IMPL_PUBLIC_INCLUDE
#include <impl/Kokkos_ExecSpaceManager.hpp>
#undef KOKKOS_IMPL_PUBLIC_INCLUDE
#include <cstdlib>
#include <memory>
#include <type_traits>

#include "detail/device_api.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/process.hpp"

namespace tessera::memory {
namespace {

using DeviceSpace = Kokkos::DefaultExecutionSpace;
constexpr bool kokkos_has_device = !std::is_same_v<DeviceSpace, Kokkos::DefaultHostExecutionSpace>;

/// Replaces the device space of Kokkos in a process that runs on the host: the
/// initialization of that space aborts without a device, and allocates memory on a device that
/// others use.
struct NoDeviceSpace final : Kokkos::Impl::ExecSpaceBase {
  void initialize(Kokkos::InitializationSettings const&) override {}
  void finalize() override {}
  void static_fence(std::string const&) override {}
  void print_configuration(std::ostream&, bool) override {}
};

/// Kokkos' sources have the key "150_Cuda" for Cuda and "150_HIP" for HIP
/// (initialize_space_factory).
void disable_kokkos_device() {
  Kokkos::Impl::ExecSpaceManager::get_instance().register_space_factory(
      concat("150_", DeviceSpace::name()), std::make_unique<NoDeviceSpace>());
}

int device_of_runtime = -1;

/// False also for the fake device of the tests.
bool uses_gpu(int ordinal) {
  return ordinal >= 0 && detail::gpu_api() && &detail::device_api() == detail::gpu_api();
}

void use_device(int ordinal) {
  auto& api = detail::device_api();
  auto const found = api.find();
  TESSERA_VALIDATE(ordinal < found.count, ConfigError, "device ", ordinal,
                   " was requested, but this process sees ", found.count, " devices",
                   found.reason.empty() ? "" : " (" + found.reason + ")",
                   "; check CUDA_VISIBLE_DEVICES and the devices allocated to the job");
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
  if (kokkos_has_device && uses_gpu(options.device))
    settings.set_device_id(options.device);
  else if (kokkos_has_device)
    disable_kokkos_device();
  Kokkos::initialize(settings);
}

Runtime::~Runtime() {
  device_of_runtime = -1;
  if (Kokkos::is_initialized() && !Kokkos::is_finalized()) Kokkos::finalize();
}

int Runtime::device() { return device_of_runtime; }

int Runtime::default_threads() {
  if (char const* wanted = std::getenv("OMP_NUM_THREADS")) {
    int const n = std::atoi(wanted);
    if (n > 0) return n;
  }
  return static_cast<int>(allowed_cores().size());
}
int Runtime::threads() {
  return Kokkos::is_initialized() ? Kokkos::DefaultHostExecutionSpace().concurrency() : 1;
}

std::string Runtime::kokkos_version() {
  std::string backends;
  if (kokkos_has_device) backends += concat(DeviceSpace::name(), ", ");
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
