#pragma once
/// Software prefetch for loops that stream through memory.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tessera/core/function.hpp"

namespace tessera::kernels::detail {

/// Asks for the cache lines of @p numel elements from @p first on, for writing when T is not const.
/// Nothing on a device, whose threads hide latency by their number. An address past the end of an
/// array is no error.
template <std::size_t numel, class T>
TESSERA_FUNCTION inline void prefetch([[maybe_unused]] T* first) {
#if defined(__GNUC__) && !defined(__CUDA_ARCH__)
  char const* const line = reinterpret_cast<char const*>(first);
  for (std::size_t i = 0; i < numel * sizeof(T); i += 64)
    __builtin_prefetch(line + i, std::is_const_v<T> ? 0 : 1);
#endif
}

/// How many elements ahead an update of several arrays asks for them; 0: not at all. Intel's
/// prefetchers stop at the borders of pages, where asking gains 16 %. AMD's do not: asking gains
/// nothing on Zen 5 and halves the speed on Zen 4. The processor's vendor decides, so that equal
/// processors run the same code.
std::int64_t prefetch_distance(std::int64_t elements);

}  // namespace tessera::kernels::detail
