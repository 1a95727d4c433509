#include "detail/device_faults.hpp"

#include <algorithm>
#include <string>

#include "tessera/core/error.hpp"
#include "tessera/core/host.hpp"

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
     {false, "another process has the device for itself (exclusive mode), or it is being reset"}},
    {101,
     {false, "the device does not exist: look at CUDA_VISIBLE_DEVICES and what the job was given"}},
    {209, {false, "this build has no kernels for the device: set TESSERA_CUDA_ARCHITECTURES"}},
    {214,
     {true,
      "an uncorrectable ECC error of the GPU's memory (Xid 48 or 95): tell the administrators, and "
      "leave the node out"}},
    {220,
     {true,
      "an uncorrectable NVLink error (Xid 74): tell the administrators, and leave the node out"}},
    {226,
     {true,
      "a contained memory error of the GPU (Xid 94): start the job again; if it returns, leave the "
      "node out"}},
    {700,
     {false, "a kernel touched memory that is not its own (Xid 31): compute-sanitizer names it"}},
    {710, {false, "an assertion inside a kernel failed"}},
    {715, {false, "a kernel hit an illegal instruction (Xid 13)"}},
    {716, {false, "a kernel used a misaligned address: compute-sanitizer names it"}},
    {719, {false, "a kernel ended abnormally (Xid 13): compute-sanitizer names it"}},
    {802, {true, "the system is not ready: on nodes with NVSwitch the fabric manager must run"}},
    {803,
     {false,
      "driver and its libraries are of different versions: the node was updated and needs a "
      "reboot"}},
    {999, {true, "the driver gives no reason; dmesg may (Xid 79: the GPU has fallen off the bus)"}},
};
constexpr int about_the_build_or_driver[] = {35, 46, 101, 209, 803};

}  // namespace

DeviceFault fault_of(int cuda_error) {
  auto const found = std::find_if(std::begin(known), std::end(known),
                                  [&](Known const& k) { return k.code == cuda_error; });
  if (found != std::end(known)) return found->fault;
  return {false,
          "it may come from earlier work of this process; dmesg names device faults (Xid), "
          "compute-sanitizer finds the kernel at fault"};
}

void throw_fault(int cuda_error, char const* call, char const* name, char const* text) {
  auto const fault = fault_of(cuda_error);
  std::string const message = concat("CUDA on ", host_name(), ": ", call, ": ", text, " (", name,
                                     ", ", cuda_error, "): ", fault.advice);
  if (fault.hardware) throw PeerLostError(-1, message);
  if (std::find(std::begin(about_the_build_or_driver), std::end(about_the_build_or_driver),
                cuda_error) != std::end(about_the_build_or_driver))
    throw ConfigError(message);
  throw InternalError(message);
}

}  // namespace tessera::memory::detail
