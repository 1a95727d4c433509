#include "base/path_limits.hpp"

#include <cstdint>
#include <limits>

namespace tessera::comm::detail {
namespace {

constexpr std::size_t unlimited = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t KiB = std::size_t{1} << 10, MiB = KiB << 10;

Vendor vendor_of_this_processor() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_is("intel")) return Vendor::intel;
#endif
  return Vendor::other;
}

/// A Xeon with AMX, where a line that another core has written is slow to read and the kernel
/// copies fast: one copy wins. Among four ranks and more it wins later, because several read what
/// one has staged. Measured on two cores: there a third rank that writes as the root delays a
/// reader.
PathLimits limits_of_intel(int ranks) {
  bool const few = ranks < 4;
  PathLimits limits;
  limits.small = few ? 4 * KiB : 64 * KiB;
  limits.small_reduction = 16 * KiB;
  limits.staged = few ? 4 * KiB : 256 * KiB;
  limits.staged_reduction = 1 * MiB;
  limits.staged_shared_reduction = 512 * KiB;
  limits.read_broadcast = ranks == 2 ? 16 * KiB : ranks == 3 ? unlimited : 512 * KiB;
  limits.copied_tile = 256 * KiB;
  limits.reduced_chunk = 4 * MiB;
  return limits;
}

/// An AMD EPYC (Zen 5), where two copies through the caches are faster than one by the kernel.
PathLimits limits_of_others() {
  PathLimits limits;
  limits.small = 256 * KiB;
  limits.small_reduction = 64 * KiB;
  limits.staged = 1 * MiB;
  limits.staged_reduction = 1 * MiB;
  limits.staged_shared_reduction = 0;
  limits.read_broadcast = unlimited;
  limits.copied_tile = 128 * KiB;
  limits.reduced_chunk = unlimited;
  return limits;
}

}  // namespace

PathLimits path_limits(Vendor vendor, int ranks) {
  return vendor == Vendor::intel ? limits_of_intel(ranks) : limits_of_others();
}

PathLimits path_limits(int ranks) { return path_limits(vendor_of_this_processor(), ranks); }

std::size_t streamed_copy() {
  static std::size_t const bytes = vendor_of_this_processor() == Vendor::intel ? 16 * MiB : 8 * MiB;
  return bytes;
}

}  // namespace tessera::comm::detail
