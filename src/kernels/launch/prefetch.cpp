#include "launch/prefetch.hpp"

namespace tessera::kernels::detail {

PrefetchDistance prefetch_distance([[maybe_unused]] Prefetched by, std::size_t widest) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_is("amd")) return {by == Prefetched::updates ? 0 : 1024, 0};
#endif
  return {static_cast<std::int64_t>(2048 / widest), 8192};
}

}  // namespace tessera::kernels::detail
