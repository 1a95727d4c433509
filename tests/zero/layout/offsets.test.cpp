/// Offsets of one kind compute with counts; offsets of two kinds do not compile together.
#include "tessera/zero/layout/offsets.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <sstream>
#include <type_traits>

namespace tessera::zero {
namespace {

template <class A, class B>
constexpr bool mixes =
    std::is_convertible_v<A, B> || std::is_constructible_v<B, A> || std::is_assignable_v<B&, A> ||
    std::is_invocable_v<std::plus<>, A, B> || std::is_invocable_v<std::minus<>, A, B> ||
    std::is_invocable_v<std::less<>, A, B> || std::is_invocable_v<std::equal_to<>, A, B>;

template <class A, class... Others>
constexpr bool mixes_with_any = (... || (mixes<A, Others> || mixes<Others, A>));

static_assert(!mixes_with_any<ParameterOffset, UnitOffset, ShardOffset, PartitionOffset>);
static_assert(!mixes_with_any<UnitOffset, ShardOffset, PartitionOffset>);
static_assert(!mixes_with_any<ShardOffset, PartitionOffset>);
static_assert(mixes<UnitOffset, UnitOffset>, "the check above can fail");

template <class Offset>
class Offsets : public ::testing::Test {
  static_assert(std::is_constructible_v<Offset, std::int64_t>);
  static_assert(!std::is_convertible_v<std::int64_t, Offset>, "construction is explicit");
  static_assert(!std::is_convertible_v<Offset, std::int64_t>, "value() is explicit");
  static_assert(!std::is_invocable_v<std::plus<>, Offset, Offset>, "two offsets have no sum");
  static_assert(!std::is_invocable_v<std::equal_to<>, Offset, std::int64_t>);
  static_assert(!std::is_invocable_v<std::less<>, Offset, std::int64_t>);
  static_assert(!std::is_invocable_v<std::minus<>, std::int64_t, Offset>);
  static_assert(std::is_same_v<std::invoke_result_t<std::minus<>, Offset, Offset>, std::int64_t>);
  static_assert(std::is_same_v<std::invoke_result_t<std::plus<>, Offset, std::int64_t>, Offset>);
  static_assert(std::is_same_v<std::invoke_result_t<std::minus<>, Offset, std::int64_t>, Offset>);
  static_assert(sizeof(Offset) == sizeof(std::int64_t) && std::is_trivially_copyable_v<Offset>);
};
using Kinds = ::testing::Types<ParameterOffset, UnitOffset, ShardOffset, PartitionOffset>;
TYPED_TEST_SUITE(Offsets, Kinds);

TYPED_TEST(Offsets, StartAtZeroAndKeepTheirValue) {
  EXPECT_EQ(TypeParam().value(), 0);
  EXPECT_EQ(TypeParam(std::int64_t{1} << 40).value(), std::int64_t{1} << 40);
}

TYPED_TEST(Offsets, MoveByCounts) {
  TypeParam at(40);
  EXPECT_EQ((at + 8).value(), 48);
  EXPECT_EQ((at - 50).value(), -10);
  at += 3;
  EXPECT_EQ(at.value(), 43);
  at -= 13;
  EXPECT_EQ(at.value(), 30);
}

TYPED_TEST(Offsets, DifferByACount) {
  EXPECT_EQ(TypeParam(48) - TypeParam(40), 8);
  EXPECT_EQ(TypeParam(40) - TypeParam(48), -8);
}

TYPED_TEST(Offsets, CompareByValue) {
  EXPECT_EQ(TypeParam(7), TypeParam(7));
  EXPECT_NE(TypeParam(7), TypeParam(8));
  EXPECT_LT(TypeParam(7), TypeParam(8));
  EXPECT_GE(TypeParam(8), TypeParam(8));
}

TYPED_TEST(Offsets, PrintTheirValue) {
  std::ostringstream out;
  out << TypeParam(224);
  EXPECT_EQ(out.str(), "224");
}

}  // namespace
}  // namespace tessera::zero
