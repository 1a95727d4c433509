/// Reductions of arrays against a recursive sum, above and below the size from which results are
/// stored past the caches.
#include "base/sums.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

namespace tessera::comm::detail {
namespace {

template <class T>
std::vector<T> values(std::int64_t n, int which) {
  std::vector<T> out(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i)
    out[static_cast<std::size_t>(i)] =
        T(static_cast<float>((i * 7919 + which * 104'729) % 20'011) / 513.7f - 19.0f);
  return out;
}

/// The sum of the sources [begin, end) as a binary tree: of the largest power of two below their
/// number, and of the rest.
template <class In>
float tree_sum(std::vector<std::vector<In>> const& in, std::size_t at, std::size_t begin,
               std::size_t end) {
  if (end - begin == 1) return static_cast<float>(in[begin][at]);
  std::size_t half = 1;
  while (2 * half < end - begin) half *= 2;
  return tree_sum(in, at, begin, begin + half) + tree_sum(in, at, begin + half, end);
}

template <class In, class Out>
void check(std::int64_t n, int sources, memory::WriteMode mode) {
  std::vector<std::vector<In>> in;
  std::vector<std::byte const*> pointers;
  for (int q = 0; q < sources; ++q) in.push_back(values<In>(n, q));
  for (auto const& v : in) pointers.push_back(reinterpret_cast<std::byte const*>(v.data()));
  auto const before = values<Out>(n + 1, 99);
  auto out = before;
  reduce_arrays(ReduceOp::sum, dtype_of<In>(), pointers, n,
                {reinterpret_cast<std::byte*>(out.data() + 1), dtype_of<Out>(), mode});
  for (std::int64_t i = 0; i < n; ++i) {
    auto const at = static_cast<std::size_t>(i);
    float sum = tree_sum(in, at, 0, in.size());
    if (mode == memory::WriteMode::add) sum += static_cast<float>(before[at + 1]);
    Out const expected(sum);
    ASSERT_EQ(std::memcmp(&expected, &out[at + 1], sizeof expected), 0)
        << i << " of " << n << ", " << sources << " sources";
  }
  ASSERT_EQ(std::memcmp(&before[0], &out[0], sizeof(Out)), 0) << "written before its start";
}

TEST(ReduceArrays, AnyNumberOfSourcesAsATree) {
  for (int const sources : {1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 37}) {
    for (std::int64_t const n : {0, 1, 63, 1024, 5001}) {
      check<float, float>(n, sources, memory::WriteMode::overwrite);
      check<bfloat16, float>(n, sources, memory::WriteMode::add);
      check<float16, bfloat16>(n, sources, memory::WriteMode::add);
    }
  }
}

TEST(ReduceArrays, SumsOfAlignedGroupsAddUpToTheSameBits) {
  constexpr std::int64_t n = 3000;
  std::vector<std::vector<float>> in;
  for (int q = 0; q < 16; ++q) in.push_back(values<float>(n, q));
  auto const sum = [&](std::vector<std::vector<float>> const& sources) {
    std::vector<std::byte const*> pointers;
    for (auto const& v : sources) pointers.push_back(reinterpret_cast<std::byte const*>(v.data()));
    std::vector<float> out(n);
    reduce_arrays(ReduceOp::sum, Dtype::fp32, pointers, n,
                  {reinterpret_cast<std::byte*>(out.data()), Dtype::fp32});
    return out;
  };
  auto const all = sum(in);
  for (std::size_t const group : {2, 4, 8}) {
    std::vector<std::vector<float>> sums;
    for (std::size_t first = 0; first < in.size(); first += group)
      sums.push_back(sum({in.begin() + static_cast<std::ptrdiff_t>(first),
                          in.begin() + static_cast<std::ptrdiff_t>(first + group)}));
    EXPECT_EQ(sum(sums), all) << "groups of " << group;
  }
  std::swap(in[1], in[2]);
  EXPECT_NE(sum(in), all) << "the values must tell orders apart";
}

TEST(ReduceArrays, LargeResultsFromAnOddAddress) {
  std::int64_t const n = (std::int64_t{16} << 20) / 2 + 12'345;
  check<bfloat16, bfloat16>(n, 2, memory::WriteMode::add);
  check<bfloat16, float>(n, 2, memory::WriteMode::overwrite);
}

TEST(ReduceArrays, IntegersWrapAround) {
  std::vector<std::int32_t> const a{2'147'483'647, -5}, b{1, 7};
  std::vector<std::int32_t> out(2);
  std::byte const* const sources[] = {reinterpret_cast<std::byte const*>(a.data()),
                                      reinterpret_cast<std::byte const*>(b.data())};
  reduce_arrays(ReduceOp::sum, Dtype::int32, sources, 2,
                {reinterpret_cast<std::byte*>(out.data()), Dtype::int32});
  EXPECT_EQ(out, (std::vector<std::int32_t>{-2'147'483'647 - 1, 2}));
}

TEST(ReduceArrays, RefusesPairsOfTypesWithoutMeaning) {
  for (auto const& [in, out] :
       {std::pair{Dtype::fp32, Dtype::int32}, std::pair{Dtype::uint8, Dtype::uint8},
        std::pair{Dtype::fp64, Dtype::fp32}})
    EXPECT_THROW(require_reducible(in, out), InternalError);
}

TEST(CopyBytes, LargeAndUnaligned) {
  std::size_t const n = (std::size_t{5} << 20) + 17;
  std::vector<std::byte> from(n + 3), to(n + 5, std::byte{0});
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 % 251);
  copy_bytes(to.data() + 5, from.data() + 3, n);
  EXPECT_EQ(std::memcmp(to.data() + 5, from.data() + 3, n), 0);
  EXPECT_EQ(to[4], std::byte{0});
}

}  // namespace
}  // namespace tessera::comm::detail
