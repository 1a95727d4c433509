/// Exact sums of squares against a serial exact sum of the same tiles, for any division of the
/// elements.
#include "tessera/kernels/elementwise/gradient_statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tessera/core/exact_sum.hpp"
#include "tessera/core/random.hpp"

namespace tessera::kernels {
namespace {

template <class T>
std::vector<T> numbers(std::int64_t n) {
  Philox const random{11, 5};
  std::vector<T> out(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = T(std::ldexp(2.0f * random.uniform(i) - 1.0f, static_cast<int>(i % 21) - 10));
  return out;
}

template <class T>
class ExactSquaresTest : public ::testing::Test {
 protected:
  ExactSum of(std::vector<GradientRun> const& runs) {
    ExactSum sum;
    exact_squares(*queue_, sum.data().data(), runs, dtype_of<T>());
    queue_->record().wait("the sum", std::chrono::seconds(60));
    return sum;
  }
  std::unique_ptr<Queue> queue_ = memory::make_inline_queue("compute");
};
using Types = ::testing::Types<float, float16, bfloat16>;
TYPED_TEST_SUITE(ExactSquaresTest, Types);

TYPED_TEST(ExactSquaresTest, IsNearTheSumInLongDouble) {
  for (std::int64_t const n : {0, 1, 31, 32, 33, 4096, 600'001}) {
    auto const values = numbers<TypeParam>(n);
    long double expected = 0;
    for (auto const x : values)
      expected += static_cast<long double>(static_cast<float>(x)) * static_cast<float>(x);
    auto const sum = this->of({{values.data(), n}}).value();
    EXPECT_NEAR(sum, static_cast<double>(expected), 1e-14 * static_cast<double>(expected)) << n;
  }
}

TYPED_TEST(ExactSquaresTest, AnyDivisionAtTilesHasTheSameDigits) {
  std::int64_t const n = 1'048'576 + 37;
  auto const values = numbers<TypeParam>(n);
  auto const at = [&](std::int64_t first) { return values.data() + first; };
  auto const whole = this->of({{values.data(), n}});
  for (std::int64_t const parts : {2, 4, 8, 3}) {
    std::int64_t const each = (n / parts + exact_tile - 1) / exact_tile * exact_tile;
    ExactSum sum;  // sum of ranks, the last first
    for (std::int64_t k = parts; k-- > 0;) {
      std::int64_t const first = std::min(n, k * each), end = std::min(n, first + each);
      std::int64_t const middle = std::min(end, first + 5 * exact_tile);
      sum.add(this->of({{at(first), middle - first}, {at(middle), end - middle}}).data());
    }
    sum.carry();
    EXPECT_TRUE(std::equal(whole.data().begin(), whole.data().end(), sum.data().begin())) << parts;
  }
}

TYPED_TEST(ExactSquaresTest, FindsWhatIsNotFinite) {
  auto values = numbers<TypeParam>(100);
  values[70] = TypeParam(std::numeric_limits<float>::infinity());
  EXPECT_FALSE(this->of({{values.data(), 100}}).is_finite());
  values[70] = TypeParam(std::numeric_limits<float>::quiet_NaN());
  EXPECT_FALSE(this->of({{values.data(), 100}}).is_finite());
  EXPECT_TRUE(this->of({{values.data(), 64}}).is_finite());
}

}  // namespace
}  // namespace tessera::kernels
