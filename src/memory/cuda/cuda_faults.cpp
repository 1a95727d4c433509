#include "cuda/cuda_faults.hpp"

#include <algorithm>
#include <charconv>
#include <string>

#include "tessera/core/error.hpp"
#include "tessera/core/process.hpp"

namespace tessera::memory::detail {
namespace {

struct Known {
  int code;
  DeviceFault fault;
};
constexpr Known known[] = {
    {35,
     {false,
      "the driver is older than the CUDA of this build: use a newer driver, or build with an older "
      "CUDA"}},
    {46,
     {false, "another process uses the device in exclusive mode, or the device is being reset"}},
    {101,
     {false,
      "the device does not exist: check CUDA_VISIBLE_DEVICES and the devices allocated to the "
      "job"}},
    {209, {false, "this build has no kernels for the device: set TESSERA_CUDA_ARCHITECTURES"}},
    {214,
     {true,
      "an uncorrectable ECC error of the GPU's memory (Xid 48 or 95): inform the administrators, "
      "and "
      "exclude the node"}},
    {220,
     {true,
      "an uncorrectable NVLink error (Xid 74): inform the administrators, and exclude the node"}},
    {226,
     {true,
      "a contained memory error of the GPU (Xid 94): restart the job; if the error returns, "
      "exclude "
      "the node"}},
    {700, {false, "a kernel made an illegal memory access (Xid 31): compute-sanitizer names it"}},
    {710, {false, "an assertion in a kernel failed"}},
    {715, {false, "a kernel hit an illegal instruction (Xid 13)"}},
    {716, {false, "a kernel used a misaligned address: compute-sanitizer names it"}},
    {719, {false, "a kernel ended abnormally (Xid 13): compute-sanitizer names it"}},
    {802, {true, "the system is not ready: on nodes with NVSwitch the fabric manager must run"}},
    {803,
     {false,
      "the driver and its libraries have different versions: the node was updated and needs a "
      "reboot"}},
    {999, {true, "the driver gives no reason; dmesg may (Xid 79: the GPU has fallen off the bus)"}},
};
constexpr int build_or_driver_errors[] = {35, 46, 101, 209, 803};

}  // namespace

DeviceFault fault_of(int error) {
  auto const found = std::find_if(std::begin(known), std::end(known),
                                  [&](Known const& k) { return k.code == error; });
  if (found != std::end(known)) return found->fault;
  return {false,
          "an earlier kernel of this process may have caused it; dmesg lists device faults (Xid), "
          "compute-sanitizer finds the kernel"};
}

void throw_fault(int error, char const* call, char const* name, char const* text) {
  auto const fault = fault_of(error);
  std::string const message = concat("CUDA on ", host_name(), ": ", call, ": ", text, " (", name,
                                     ", ", error, "): ", fault.advice);
  if (fault.hardware) throw PeerLostError(-1, message);
  if (std::find(std::begin(build_or_driver_errors), std::end(build_or_driver_errors), error) !=
      std::end(build_or_driver_errors))
    throw ConfigError(message);
  throw InternalError(message);
}

bool kernels_run_on(std::string_view built_for, int major, int minor) {
  int newest = 0;
  for (char const *at = built_for.data(), *const end = at + built_for.size(); at < end; ++at) {
    int architecture = 0;
    auto const number = std::from_chars(at, end, architecture);
    if (number.ec != std::errc()) continue;
    if (architecture / 10 == major && architecture % 10 <= minor) return true;
    newest = architecture;
    at = number.ptr;
  }
  return newest > 0 && 10 * major + minor >= newest;
}

void require_architecture(DeviceInfo const& device, std::string_view built_for) {
  TESSERA_VALIDATE(kernels_run_on(built_for, device.major, device.minor), ConfigError, "device ",
                   device.ordinal, " (", device.name, ") has compute capability ", device.major,
                   ".", device.minor, ", and this build has kernels for architectures ", built_for,
                   "; configure with -DTESSERA_CUDA_ARCHITECTURES=", device.major, device.minor);
}

}  // namespace tessera::memory::detail
