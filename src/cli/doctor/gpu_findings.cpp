#include "doctor/gpu_findings.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

using topology::Environment, topology::Gpu, topology::GpuInventory, topology::GpuPath;

struct Switch {
  char const *name, *value, *cost;  ///< null value: any
};
constexpr Switch costly_switches[] = {
    {"NCCL_IB_DISABLE", "1",
     "InfiniBand and RoCE are off: traffic between nodes goes through TCP sockets, many times "
     "slower"},
    {"NCCL_P2P_DISABLE", "1",
     "direct GPU-to-GPU transfers (NVLink, PCIe) are off: all traffic goes through host memory"},
    {"NCCL_SHM_DISABLE", "1",
     "shared memory is off: GPUs of a node without peer access communicate through the network"},
    {"NCCL_NVLS_ENABLE", "0", "NVLink SHARP is off: reductions in the switch are not used"},
    {"NCCL_LAUNCH_ORDER_IMPLICIT", "0",
     "all collectives share one communicator: gradient reductions and weight all-gathers do not "
     "overlap"},
    {"NCCL_LOCAL_REGISTER", "0", "buffers are not registered: NCCL copies through its own buffers"},
    {"NCCL_CUMEM_ENABLE", "0",
     "ncclMemAlloc returns ordinary memory: buffers are not registered, and NCCL copies through "
     "its own buffers"},
    {"NCCL_NET_GDR_LEVEL", "LOC",
     "GPUDirect RDMA is off: traffic between nodes goes through host memory"},
    {"NCCL_NET_GDR_LEVEL", "0",
     "GPUDirect RDMA is off: traffic between nodes goes through host memory"},
    {"NCCL_NET", "Socket",
     "traffic between nodes goes through TCP sockets, many times slower than the fabric"},
    {"NCCL_PROTO", "Simple", "one protocol for all message sizes: small messages are slower"},
    {"NCCL_ALGO", nullptr,
     "NCCL no longer selects the algorithm by message size; use it only for experiments"},
    {"NCCL_LAUNCH_MODE", "GROUP",
     "kernels of a process start together; meant for several GPUs per process"},
    {"NCCL_DEBUG", "INFO", "many lines per rank; use it only for debugging"},
    {"NCCL_DEBUG", "TRACE", "very many lines per rank; use it only for debugging"},
    {"CUDA_LAUNCH_BLOCKING", "1",
     "every kernel launch blocks: computation and communication do not overlap"},
};

struct Xid {
  int number;
  char const *name, *advice;
};
constexpr Xid xids[] = {
    {13, "graphics engine exception",
     "usually a bug in the program: compute-sanitizer finds the kernel"},
    {31, "memory page fault", "usually a bug in the program: compute-sanitizer finds the kernel"},
    {43, "a program's channel was stopped", "a consequence of that program's error"},
    {45, "a program's channels were removed",
     "a consequence of an earlier error or of a program's end"},
    {48, "uncorrectable (double-bit) ECC error", "tell the administrators; leave the node out"},
    {63, "memory row remapping recorded", "takes effect at the next reset of the GPU"},
    {64, "memory row remapping failed", "tell the administrators; leave the node out"},
    {74, "NVLink error", "tell the administrators; leave the node out if it returns"},
    {79, "the GPU has fallen off the bus", "tell the administrators; leave the node out"},
    {92, "high rate of single-bit ECC errors", "tell the administrators"},
    {94, "contained ECC error", "start the job again; other programs are not affected"},
    {95, "uncontained ECC error", "the GPU needs a reset; leave the node out"},
    {119, "the GPU's system processor does not answer",
     "the GPU needs a reset; leave the node out"},
    {120, "error of the GPU's system processor", "the GPU needs a reset; leave the node out"},
};

}  // namespace

std::string runtime_version_text(int version) {
  return version > 0 ? concat(version / 1000, ".", version % 1000 / 10) : "none";
}

std::vector<std::string> gpu_findings(GpuInventory const& inventory, GpuSoftware const& software) {
  std::vector<std::string> out;
  if (!inventory.refusal.empty()) return {inventory.refusal};
  if (inventory.gpus.empty()) out.push_back("the driver reports no GPU");
  if (software.runtime > 0 && inventory.runtime > 0 &&
      inventory.runtime / 1000 < software.runtime / 1000)
    out.push_back(concat("the driver ", inventory.driver, " is for CUDA ",
                         runtime_version_text(inventory.runtime), ", older than this build's CUDA ",
                         runtime_version_text(software.runtime),
                         ": runs compute on the CPU; use a newer driver, or build with CUDA ",
                         inventory.runtime / 1000));
  for (std::size_t i = 0; i < inventory.gpus.size(); ++i) {
    Gpu const& gpu = inventory.gpus[i];
    if (gpu.ecc_errors > 0)
      out.push_back(
          concat("GPU ", i, " (", gpu.bus, "): ", gpu.ecc_errors,
                 " uncorrected ECC errors since the driver was loaded; tell the administrators"));
    if (gpu.remap_failed)
      out.push_back(
          concat("GPU ", i, " (", gpu.bus, "): memory row remapping failed; leave the node out"));
    else if (gpu.remap_pending)
      out.push_back(concat("GPU ", i, " (", gpu.bus,
                           "): memory row remapping is pending; the GPU needs a reset"));
    if (gpu.mig)
      out.push_back(concat("GPU ", i,
                           " is divided into MIG instances: a process sees one of them, and NCCL "
                           "does not connect instances of one GPU"));
  }
  for (std::size_t a = 0; a < inventory.paths.size(); ++a)
    for (std::size_t b = a + 1; b < inventory.paths[a].size(); ++b)
      if (inventory.gpus[a].nvlinks > 0 && inventory.gpus[b].nvlinks > 0 &&
          inventory.paths[a][b] != GpuPath::nvlink)
        out.push_back(concat("GPUs ", a, " and ", b,
                             " have NVLinks but no NVLink path: ", name_of(inventory.paths[a][b]),
                             "; check that the fabric manager is running"));
  return out;
}

std::vector<std::string> nccl_findings(Environment const& environment) {
  std::vector<std::string> out;
  for (auto const& [name, value] : environment) {
    if (!name.starts_with("NCCL_") && name != "CUDA_LAUNCH_BLOCKING") continue;
    auto const known = std::find_if(std::begin(costly_switches), std::end(costly_switches),
                                    [&name = name, &value = value](Switch const& s) {
                                      return name == s.name && (!s.value || value == s.value);
                                    });
    out.push_back(concat(name, "=", value,
                         known == std::end(costly_switches) ? "" : concat(": ", known->cost)));
  }
  return out;
}

std::vector<std::string> xid_findings(std::string const& kernel_log) {
  std::vector<std::string> out;
  std::set<std::string> said;
  static constexpr std::string_view mark = "NVRM: Xid (PCI:";
  for (auto at = kernel_log.find(mark); at != std::string::npos;
       at = kernel_log.find(mark, at + 1)) {
    auto const bus_at = at + mark.size(), bus_end = kernel_log.find(')', bus_at),
               number_at = kernel_log.find_first_of("0123456789\n", bus_end);
    if (bus_end == std::string::npos || number_at == std::string::npos) break;
    int const number = std::atoi(kernel_log.c_str() + number_at);
    auto const known = std::find_if(std::begin(xids), std::end(xids),
                                    [&](Xid const& x) { return x.number == number; });
    std::string line =
        concat("GPU ", kernel_log.substr(bus_at, bus_end - bus_at), ": Xid ", number);
    if (known != std::end(xids)) line += concat(", ", known->name, ": ", known->advice);
    if (said.insert(line).second) out.push_back(line);
  }
  return out;
}

}  // namespace tessera::cli
