#include "launch/prefetch.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tessera::kernels::detail {
namespace {

TEST(Prefetch, TakesAddressesPastTheEndOfAnArray) {
  std::vector<float> const values(4, 1.0f);
  prefetch<64>(values.data() + (std::int64_t{1} << 40));
  prefetch<64>(values.data(),
               {.elements = std::int64_t{1} << 40, .far_bytes = std::int64_t{1} << 42});
  EXPECT_EQ(values[3], 1.0f);
}

TEST(Prefetch, TheVendorOfTheProcessorDecidesHowFarLoopsAsk) {
  bool is_amd = false;
#if defined(__x86_64__)
  __builtin_cpu_init();
  is_amd = __builtin_cpu_is("amd");
#endif
  auto const elements = [](auto... of) { return prefetch_distance(of...).elements; };
  EXPECT_EQ(elements(Prefetched::updates), is_amd ? 0 : 512);
  EXPECT_EQ(elements(Prefetched::updates, std::size_t{2}), is_amd ? 0 : 1024);
  EXPECT_EQ(elements(Prefetched::sums), is_amd ? 1024 : 512);
  EXPECT_EQ(prefetch_distance(Prefetched::sums).far_bytes, is_amd ? 0 : 8192);
  EXPECT_EQ(prefetch_distance(Prefetched::updates).far_bytes, is_amd ? 0 : 8192);
}

}  // namespace
}  // namespace tessera::kernels::detail
