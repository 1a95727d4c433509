#include "detail/prefetch.hpp"

namespace tessera::kernels::detail {

std::int64_t prefetch_distance(std::int64_t elements) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_is("amd")) return 0;
#endif
  return elements;
}

}  // namespace tessera::kernels::detail
