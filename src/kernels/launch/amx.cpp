#include "launch/amx.hpp"

#include <atomic>

#ifdef TESSERA_AMX_TILES
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tessera::kernels::detail {
namespace {

std::atomic<int> forbidden{0};

#ifdef TESSERA_AMX_TILES
bool processor_has_amx_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;
  if ((d & amx_bf16) == 0 || (d & amx_tile) == 0) return false;
  // vcvtne2ps2bf16, which writes the operands of products
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 5)) != 0;
}

/// Linux gives the registers of tiles to processes that ask for them.
bool system_grants_tiles() {
  constexpr long request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}
#endif

}  // namespace

bool has_amx_bf16() {
#ifdef TESSERA_AMX_TILES
  static bool const has = processor_has_amx_bf16() && system_grants_tiles();
  return has && forbidden.load(std::memory_order_relaxed) == 0;
#else
  return false;
#endif
}

WithoutAmx::WithoutAmx() { ++forbidden; }
WithoutAmx::~WithoutAmx() { --forbidden; }

}  // namespace tessera::kernels::detail
