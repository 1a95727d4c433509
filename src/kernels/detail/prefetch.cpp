#include "detail/prefetch.hpp"

namespace tessera::kernels::detail {

std::int64_t prefetch_distance(Prefetched by, std::size_t widest) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_is("amd")) return by == Prefetched::updates ? 0 : 1024;
#endif
  return static_cast<std::int64_t>(512 / widest);
}

}  // namespace tessera::kernels::detail
