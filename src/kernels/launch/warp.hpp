#pragma once
/// The threads of a device that execute an instruction together.

#include "launch/device_code.hpp"
#include "tessera/core/rounding.hpp"

#ifndef TESSERA_WARP_SIZE
#define TESSERA_WARP_SIZE 32
#endif

namespace tessera::kernels::detail {

/// Threads of a warp: they read neighboring packs in one instruction and exchange registers. A
/// build has devices of one width; one for devices with warps of 64 defines TESSERA_WARP_SIZE.
inline constexpr int warp_size = TESSERA_WARP_SIZE;
static_assert(warp_size == 32 || warp_size == 64);

/// The value of the thread of this warp whose rank is that of the caller ^ @p mask. All threads of
/// the warp must call it. A team on the host has one thread, which gets its own value.
TESSERA_FUNCTION inline float exchange_in_warp(float value, [[maybe_unused]] int mask) {
#if defined(TESSERA_PTX)
  return __shfl_xor_sync(0xFFFFFFFFu, value, mask);
#else
  return value;
#endif
}

}  // namespace tessera::kernels::detail
