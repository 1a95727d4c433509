// A libnvidia-ml.so with three GPUs: two linked by NVLink, the third behind the other socket with a
// history. For gpu_inventory.test.cpp.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {
unsigned index_of(void* device) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(device)) - 1;
}
}  // namespace

extern "C" {
int nvmlInit_v2() {
  return std::getenv("TESSERA_FAKE_NVML_BROKEN") ? 9 : 0;
}  // NVML_ERROR_DRIVER_NOT_LOADED
int nvmlShutdown() { return 0; }
char const* nvmlErrorString(int) { return "Driver Not Loaded"; }
int nvmlSystemGetDriverVersion(char* out, unsigned length) {
  return std::snprintf(out, length, "535.104.05") < 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) { return *version = 12020, 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 3, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** device) {
  return *device = reinterpret_cast<void*>(std::uintptr_t{i} + 1), 0;
}
int nvmlDeviceGetName(void*, char* out, unsigned length) {
  return std::snprintf(out, length, "Fake H100") < 0;
}
int nvmlDeviceGetUUID(void* device, char* out, unsigned length) {
  return std::snprintf(out, length, "GPU-000%u", index_of(device)) < 0;
}
int nvmlDeviceGetPciInfo_v3(void* device, void* out) {
  std::memset(out, 0, 68);
  return std::snprintf(static_cast<char*>(out) + 36, 32, "00000000:1%u:00.0", index_of(device)) < 0;
}
int nvmlDeviceGetMemoryInfo(void*, unsigned long long* out) {
  out[0] = 80ull << 30;
  out[1] = 78ull << 30;
  out[2] = 2ull << 30;
  return 0;
}
int nvmlDeviceGetMigMode(void* device, unsigned* now, unsigned* later) {
  return *now = *later = index_of(device) == 2 ? 1 : 0, 0;
}
int nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* active) {
  return *active = index_of(device) < 2 && link < 12 ? 1 : 0, 0;
}
int nvmlDeviceGetTotalEccErrors(void* device, unsigned, unsigned, unsigned long long* count) {
  return *count = index_of(device) == 2 ? 5 : 0, 0;
}
int nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected,
                              unsigned* pending, unsigned* failed) {
  bool const worn = index_of(device) == 2;
  *corrected = 0;
  *uncorrected = worn ? 2 : 0;
  *pending = worn ? 1 : 0;
  return *failed = 0, 0;
}
int nvmlDeviceGetTopologyCommonAncestor(void* a, void* b, unsigned* level) {
  return *level = index_of(a) == 2 || index_of(b) == 2 ? 50 : 20, 0;
}
int nvmlDeviceGetP2PStatus(void* a, void* b, unsigned kind, unsigned* status) {
  return *status = kind == 2 && index_of(a) < 2 && index_of(b) < 2 ? 0 : 4, 0;
}
}
