#pragma once
/// Software prefetch for loops that stream through memory.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "launch/device_code.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels::detail {

/// Asks for the cache lines of @p numel elements from @p first on, for writing when T is not const.
/// Nothing on a device, whose threads hide latency by their number. An address past the end of an
/// array is no error. GCC drops calls of functions that do nothing but prefetch: loops call it
/// themselves.
template <std::size_t numel, class T>
TESSERA_FUNCTION inline void prefetch([[maybe_unused]] T* first) {
#if defined(__GNUC__) && !defined(TESSERA_DEVICE_CODE)
  char const* const line = reinterpret_cast<char const*>(first);
  for (std::size_t i = 0; i < numel * sizeof(T); i += 64)
    __builtin_prefetch(line + i, std::is_const_v<T> ? 0 : 1);
#endif
}

/// How far ahead a loop asks for its operands.
struct PrefetchDistance {
  std::int64_t elements = 0;  ///< into the first-level cache; 0: not at all
  /// Bytes ahead that a loop prefetches into the second-level cache as well; 0: none. It is a page
  /// or more, because processors' prefetchers stop at its end, and a core that computes has fewer
  /// reads of its own in flight.
  std::int64_t far_bytes = 0;

  TESSERA_FUNCTION bool any() const { return elements > 0; }
};

/// Asks for what a loop at @p here will need, @p numel elements of it.
template <std::size_t numel, class T>
TESSERA_FUNCTION inline void prefetch([[maybe_unused]] T* here,
                                      [[maybe_unused]] PrefetchDistance const& distance) {
  prefetch<numel>(here + distance.elements);
#if defined(__GNUC__) && !defined(TESSERA_DEVICE_CODE)
  if (distance.far_bytes == 0) return;
  char const* const line = reinterpret_cast<char const*>(here) + distance.far_bytes;
  for (std::size_t i = 0; i < numel * sizeof(T); i += 64) __builtin_prefetch(line + i, 0, 2);
#endif
}

/// Elements that a loop asks for at a time: four lines of fp32. More at a time wait for each other.
inline constexpr int prefetched = 64;

/// Loops that prefetch: those that write, and sums over one array.
enum class Prefetched { updates, sums };

/// How far ahead a loop asks for its operands. Figures are in docs/reference/performance.md. The
/// processor's vendor decides, so that equal processors run the same code.
/// @param widest bytes of an element of the widest operand
PrefetchDistance prefetch_distance(Prefetched by, std::size_t widest = 4);

}  // namespace tessera::kernels::detail
