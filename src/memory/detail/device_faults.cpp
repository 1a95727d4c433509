#include "detail/device_api.hpp"

#include <algorithm>
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

DeviceFault fault_of(int cuda_error) {
  auto const found = std::find_if(std::begin(known), std::end(known),
                                  [&](Known const& k) { return k.code == cuda_error; });
  if (found != std::end(known)) return found->fault;
  return {false,
          "an earlier kernel of this process may have caused it; dmesg lists device faults (Xid), "
          "compute-sanitizer finds the kernel"};
}

void throw_fault(int cuda_error, char const* call, char const* name, char const* text) {
  auto const fault = fault_of(cuda_error);
  std::string const message = concat("CUDA on ", host_name(), ": ", call, ": ", text, " (", name,
                                     ", ", cuda_error, "): ", fault.advice);
  if (fault.hardware) throw PeerLostError(-1, message);
  if (std::find(std::begin(build_or_driver_errors), std::end(build_or_driver_errors), cuda_error) !=
      std::end(build_or_driver_errors))
    throw ConfigError(message);
  throw InternalError(message);
}

}  // namespace tessera::memory::detail
