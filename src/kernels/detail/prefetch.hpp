#pragma once
/// Software prefetch for loops that stream through memory.

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <type_traits>

namespace tessera::kernels::detail {

/// Asks for the cache lines of @p numel elements from @p first on, for writing when T is not const.
/// Nothing on a device, whose threads hide latency by their number. An address past the end of an
/// array is no error.
template <std::size_t numel, class T>
KOKKOS_INLINE_FUNCTION void prefetch([[maybe_unused]] T* first) {
#if defined(__GNUC__) && !defined(__CUDA_ARCH__)
  char const* const line = reinterpret_cast<char const*>(first);
  for (std::size_t i = 0; i < numel * sizeof(T); i += 64)
    __builtin_prefetch(line + i, std::is_const_v<T> ? 0 : 1);
#endif
}

}  // namespace tessera::kernels::detail
