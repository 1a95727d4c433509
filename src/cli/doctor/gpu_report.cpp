#include "doctor/gpu_report.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

#include "doctor/gpu_findings.hpp"
#include "launch/run_program.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/shared_library.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/topology/device_binding.hpp"
#include "tessera/topology/gpu_inventory.hpp"
#include "tessera/train/report/version.hpp"

namespace tessera::cli {
namespace {

using topology::GpuPath;

void print_devices(topology::GpuInventory const& inventory) {
  for (std::size_t i = 0; i < inventory.gpus.size(); ++i) {
    auto const& gpu = inventory.gpus[i];
    std::string const ecc =
        gpu.ecc_errors < 0 ? "ECC off" : fmt::format("{} uncorrected ECC errors", gpu.ecc_errors);
    std::string const rows =
        gpu.remapped_rows < 0 ? "" : fmt::format(", {} remapped rows", gpu.remapped_rows);
    fmt::print("GPU {}  {}  {} free of {}  {}  {}{}, MIG {}, {} NVLinks\n       {}\n", i, gpu.name,
               human_bytes(static_cast<std::int64_t>(gpu.total_bytes - gpu.used_bytes)),
               human_bytes(static_cast<std::int64_t>(gpu.total_bytes)), gpu.bus, ecc, rows,
               gpu.mig ? "on" : "off", gpu.nvlinks, gpu.uuid);
  }
}

/// One row per GPU, one column per GPU and network device.
void print_paths(topology::GpuInventory const& inventory,
                 std::vector<topology::NetworkDevice> const& networks) {
  if (inventory.gpus.empty()) return;
  fmt::print("\n{:<8}", "");
  for (std::size_t i = 0; i < inventory.gpus.size(); ++i)
    fmt::print("{:<8}", fmt::format("GPU {}", i));
  for (auto const& network : networks) fmt::print("{:<10}", network.name);
  fmt::print("\n");
  for (std::size_t a = 0; a < inventory.gpus.size(); ++a) {
    fmt::print("{:<8}", fmt::format("GPU {}", a));
    for (auto const path : inventory.paths[a]) fmt::print("{:<8}", name_of(path));
    for (auto const& network : networks) fmt::print("{:<10}", name_of(network.from_gpu[a]));
    fmt::print("\n");
  }
  fmt::print(
      "NVL: NVLink; PIX: one PCIe switch; PXB: several; PHB: the processor's PCIe bridge; NODE: "
      "within a NUMA node or socket; SYS: between sockets\n");
}

/// Version of the NCCL library that the loader finds; empty: none.
std::string installed_nccl() {
  SharedLibrary const library({"libnccl.so.2"});
  int (*version)(int*) = nullptr;
  int number = 0;
  if (!library.find("ncclGetVersion", version) || version(&number) != 0) return "";
  return concat(number / 10000, ".", number / 100 % 100, ".", number % 100);
}

void print_lines(char const* title, std::vector<std::string> const& lines) {
  if (!lines.empty()) fmt::print("\n{}\n", title);
  for (auto const& line : lines) fmt::print("  - {}\n", line);
}

}  // namespace

void print_gpus() {
  using namespace std::chrono_literals;
  auto const inventory = topology::read_gpu_inventory();
  GpuSoftware const software{memory::cuda_runtime_version(), installed_nccl()};
  fmt::print("driver {} (CUDA {}); this build: CUDA {}; NCCL {}\n",
             inventory.driver.empty() ? "none" : inventory.driver,
             cuda_version_text(inventory.cuda), cuda_version_text(software.runtime),
             software.nccl.empty() ? "not found" : software.nccl);
  print_devices(inventory);
  print_paths(inventory, topology::read_network_devices(inventory.gpus));
  auto findings = gpu_findings(inventory, software);
  auto const environment = topology::process_environment();
  for (auto const& finding : topology::device_view_findings(environment))
    findings.push_back(finding);
  for (auto const& finding : xid_findings(output_of({"dmesg"}, 5s))) findings.push_back(finding);
  print_lines("Findings", findings);
  print_lines("NCCL settings", nccl_findings(environment));
}

NodeSection gpu_section() {
  NodeSection section{"GPU", {}, {}};
  auto const versions = train::build_versions();
  section.add("this build", memory::built_with_cuda() ? "CUDA " + versions.at("cuda").as_string()
                                                      : "without CUDA: trains on the CPU");
  int const devices = topology::count_nvidia_devices();
  section.add("devices of this node", std::to_string(devices));
  if (char const* visible = std::getenv("CUDA_VISIBLE_DEVICES"))
    section.add("CUDA_VISIBLE_DEVICES", visible);
  if (devices > 0 && !memory::built_with_cuda())
    section.problems.push_back(
        "this node has NVIDIA devices but this build has no CUDA; build with "
        "-DTESSERA_ENABLE_CUDA=ON, or load the module of a CUDA build");
  if (!memory::built_with_cuda()) return section;
  auto const found = memory::find_devices();
  section.add("usable", std::to_string(found.count));
  if (found.count == 0) section.problems.push_back("no usable GPU: " + found.reason);
  return section;
}

}  // namespace tessera::cli
