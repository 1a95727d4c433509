#pragma once
/// The NVML functions in use, loaded at run time. Declared here after the "NVML API Reference
/// Guide": the ABI is stable, and build machines may lack the header.

#include <cstdint>

#include "tessera/core/shared_library.hpp"

namespace tessera::topology::detail {

using NvmlDevice = void*;
struct NvmlMemory {
  unsigned long long total, free, used;
};
/// nvmlPciInfo_t
struct NvmlPci {
  char bus_legacy[16];
  unsigned domain, bus, device, pci_device, pci_subsystem;
  char bus_id[32];
};

struct Nvml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  char const* (*error_text)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*cuda_version)(int*) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, NvmlDevice*) = nullptr;
  int (*name)(NvmlDevice, char*, unsigned) = nullptr;
  int (*uuid)(NvmlDevice, char*, unsigned) = nullptr;
  int (*pci)(NvmlDevice, NvmlPci*) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*mig_mode)(NvmlDevice, unsigned*, unsigned*) = nullptr;
  int (*link_state)(NvmlDevice, unsigned, unsigned*) = nullptr;
  int (*ecc_errors)(NvmlDevice, unsigned, unsigned, unsigned long long*) = nullptr;
  int (*remapped)(NvmlDevice, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  int (*ancestor)(NvmlDevice, NvmlDevice, unsigned*) = nullptr;
  int (*p2p)(NvmlDevice, NvmlDevice, unsigned, unsigned*) = nullptr;

  SharedLibrary library;
  /// Whether the library and its required functions were found. Others may be null with old
  /// drivers.
  bool load(std::string const& file) {
    library = SharedLibrary({file});
    library.find("nvmlShutdown", shutdown);
    library.find("nvmlErrorString", error_text);
    library.find("nvmlSystemGetDriverVersion", driver_version);
    library.find("nvmlSystemGetCudaDriverVersion_v2", cuda_version);
    library.find("nvmlDeviceGetName", name);
    library.find("nvmlDeviceGetUUID", uuid);
    library.find("nvmlDeviceGetPciInfo_v3", pci);
    library.find("nvmlDeviceGetMemoryInfo", memory);
    library.find("nvmlDeviceGetMigMode", mig_mode);
    library.find("nvmlDeviceGetNvLinkState", link_state);
    library.find("nvmlDeviceGetTotalEccErrors", ecc_errors);
    library.find("nvmlDeviceGetRemappedRows", remapped);
    library.find("nvmlDeviceGetTopologyCommonAncestor", ancestor);
    library.find("nvmlDeviceGetP2PStatus", p2p);
    return library.find("nvmlInit_v2", init) && library.find("nvmlDeviceGetCount_v2", count) &&
           library.find("nvmlDeviceGetHandleByIndex_v2", handle);
  }
};

}  // namespace tessera::topology::detail
