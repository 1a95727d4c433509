#include "detail/prefetch.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tessera::kernels::detail {
namespace {

TEST(Prefetch, TakesAddressesPastTheEndOfAnArray) {
  std::vector<float> const values(4, 1.0f);
  prefetch<64>(values.data() + (std::int64_t{1} << 40));
  EXPECT_EQ(values[3], 1.0f);
}

TEST(Prefetch, TheVendorOfTheProcessorDecidesWhetherLoopsAsk) {
  bool asks = true;
#if defined(__x86_64__)
  __builtin_cpu_init();
  asks = !__builtin_cpu_is("amd");
#endif
  EXPECT_EQ(prefetch_distance(512), asks ? 512 : 0);
}

}  // namespace
}  // namespace tessera::kernels::detail
