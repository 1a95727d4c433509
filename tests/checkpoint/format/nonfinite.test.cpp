#include "tessera/checkpoint/format/nonfinite.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tessera/core/error.hpp"

namespace tessera::checkpoint {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float largest = std::numeric_limits<float>::max();

TEST(NonFinite, CountsInfinitiesAndNaNOfEitherSign) {
  std::vector<float> values((1 << 20) + 77, 1.0f);
  EXPECT_EQ(count_nonfinite(values.data(), static_cast<std::int64_t>(values.size())), 0);
  std::int64_t bad = 0;
  for (std::size_t const at :
       {std::size_t{0}, std::size_t{31}, values.size() / 2, values.size() - 1})
    for (float const value : {infinity, -infinity, nan, -nan}) {
      values[at] = value;
      bad += value == infinity ? 1 : 0;
      EXPECT_EQ(count_nonfinite(values.data(), static_cast<std::int64_t>(values.size())), bad);
    }
  float const finite[] = {0.0f, -0.0f, largest, -largest, std::numeric_limits<float>::denorm_min()};
  EXPECT_EQ(count_nonfinite(finite, 5), 0);
  EXPECT_EQ(count_nonfinite(finite, 0), 0);
}

TEST(NonFinite, CountsWhatA16BitTypeCannotHold) {
  float const around[] = {65504.0f, -65519.996f, 65520.0f, -65520.0f, largest, 1e20f};
  EXPECT_EQ(count_nonfinite(around, 6, Dtype::fp16), 4);
  EXPECT_EQ(count_nonfinite(around, 6, Dtype::bf16), 1) << "the largest fp32 rounds to infinity";
  EXPECT_EQ(count_nonfinite(around, 6, Dtype::fp32), 0);
  float const edge[] = {std::nextafter(0x1.ffp127f, 0.0f), 0x1.ffp127f};
  EXPECT_EQ(count_nonfinite(edge, 2, Dtype::bf16), 1);
}

TEST(NonFinite, TalliesByTensorAndState) {
  NonFiniteTally tally;
  tally.add("a", "fp32", 0);
  tally.add("a", "fp32", 2);
  tally.add("b", "exp_avg", 1);
  tally.add("a", "fp32", 3);
  EXPECT_EQ(tally.list(), (std::vector<NonFinite>{{"a", "fp32", 5}, {"b", "exp_avg", 1}}));
  EXPECT_EQ(text_of(tally.list()), "fp32 of a (5 values), exp_avg of b (1 value)");
  EXPECT_EQ(text_of({{"a", "", 2}}), "a (2 values)");
  for (char const* name : {"c", "d", "e"}) tally.add(name, "fp32", 1);
  EXPECT_EQ(
      text_of(tally.list()),
      "fp32 of a (5 values), exp_avg of b (1 value), fp32 of c (1 value), fp32 of d (1 value) "
      "and 1 more");
}

TEST(NonFinite, GoesThroughATree) {
  std::vector<NonFinite> const list{{"a", "fp32", 5}, {"b", "exp_avg", 1}};
  EXPECT_EQ(
      to_tree(list).dump(),
      R"([{"tensor":"a","state":"fp32","count":5},{"tensor":"b","state":"exp_avg","count":1}])");
  EXPECT_EQ(nonfinite_from(to_tree(list)), list);
  for (char const* text : {"{}", "[1]", R"([{"tensor": "a", "state": "fp32"}])",
                           R"([{"tensor": "a", "state": 1, "count": 5}])"})
    EXPECT_THROW(nonfinite_from(ConfigTree::parse(text, "test")), DataError) << text;
}

}  // namespace
}  // namespace tessera::checkpoint
