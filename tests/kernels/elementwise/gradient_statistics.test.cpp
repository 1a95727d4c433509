#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "elementwise/gradient_statistics_rule.hpp"
#include "fake_device.hpp"
#include "tessera/core/random.hpp"
#include "tessera/kernels/elementwise/gradient_statistics.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::kernels {
namespace {

template <class T>
std::vector<T> numbers(std::int64_t n, float scale = 1.0f) {
  Philox const random{11, 5};
  std::vector<T> out(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = T(scale * (2.0f * random.uniform(i) - 1.0f));
  return out;
}

template <class T>
long double serial_sum(std::vector<T> const& values) {
  long double sum = 0;
  for (auto x : values)
    sum += static_cast<long double>(static_cast<float>(x)) * static_cast<float>(x);
  return sum;
}

/// What a step makes of the two numbers.
struct Found {
  double sum_of_squares = -1.0;
  bool finite = false;
};
Found found(Queue& q, std::vector<GradientRun> const& runs, Dtype dtype) {
  double sums[2] = {-1.0, -1.0};
  gradient_statistics(q, sums, runs, dtype);
  q.record().wait("the sums", std::chrono::seconds(60));
  return {sums[0], sums[1] == 0.0};
}

template <class T>
class GradientStatisticsTest : public ::testing::Test {
 protected:
  Found of(std::vector<T> const& values) {
    return found(*q, {{values.data(), static_cast<std::int64_t>(values.size())}}, dtype_of<T>());
  }
  std::unique_ptr<Queue> q = memory::make_inline_queue("compute");
};
using Types = ::testing::Types<float, float16, bfloat16>;
TYPED_TEST_SUITE(GradientStatisticsTest, Types);

TYPED_TEST(GradientStatisticsTest, SumsOfAllSizes) {
  for (std::int64_t n : {0, 1, 7, 15, 16, 17, 16383, 16384, 16385, 100003}) {
    auto const values = numbers<TypeParam>(n, 100.0f);
    auto const got = this->of(values);
    auto const want = static_cast<double>(serial_sum(values));
    EXPECT_NEAR(got.sum_of_squares, want, 1e-13 * want) << n;
    EXPECT_TRUE(got.finite);
  }
}

TYPED_TEST(GradientStatisticsTest, FindsOneBadElementAnywhere) {
  for (std::int64_t n : {1, 5, 16, 33, 40000})
    for (float bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN()})
      for (std::int64_t at : {std::int64_t{0}, n / 2, n - 1}) {
        auto values = numbers<TypeParam>(n);
        values[static_cast<std::size_t>(at)] = TypeParam(bad);
        EXPECT_FALSE(this->of(values).finite) << bad << " at " << at << " of " << n;
      }
}

TYPED_TEST(GradientStatisticsTest, LargestAndSmallestNumbersAreFinite) {
  float const largest = sizeof(TypeParam) == 4                 ? std::numeric_limits<float>::max()
                        : dtype_of<TypeParam>() == Dtype::fp16 ? 65504.0f
                                                               : 0x1.FEp+127f;
  float const smallest = dtype_of<TypeParam>() == Dtype::fp16   ? 0x1p-24f
                         : dtype_of<TypeParam>() == Dtype::bf16 ? 0x1p-133f
                                                                : 0x1p-149f;
  for (float x : {largest, smallest}) {
    std::vector<TypeParam> const values(1000, TypeParam(x));
    auto const got = this->of(values);
    EXPECT_TRUE(got.finite);
    EXPECT_NEAR(got.sum_of_squares, 1000.0 * x * x, 1e-11 * x * x) << x;
  }
}

TYPED_TEST(GradientStatisticsTest, RunsAddUpInOrderAndRepeatBitForBit) {
  auto const a = numbers<TypeParam>(20001), b = numbers<TypeParam>(3),
             c = numbers<TypeParam>(50000, 1e-3f);
  std::vector<GradientRun> const runs{
      {a.data(), 20001}, {nullptr, 0}, {b.data(), 3}, {c.data(), 50000}};
  Found const first = found(*this->q, runs, dtype_of<TypeParam>()),
              second = found(*this->q, runs, dtype_of<TypeParam>());
  EXPECT_EQ(first.sum_of_squares, second.sum_of_squares);
  auto const want = static_cast<double>(serial_sum(a) + serial_sum(b) + serial_sum(c));
  EXPECT_NEAR(first.sum_of_squares, want, 1e-13 * want);
}

TEST(GradientStatistics, OnAWorkerQueueIsThereAfterItsEvent) {
  auto q = memory::make_worker_queue("lane");
  std::vector<float> const values(1000, 2.0f);
  Found const out = found(*q, {{values.data(), 1000}}, Dtype::fp32);
  EXPECT_EQ(out.sum_of_squares, 4000.0);
  EXPECT_TRUE(out.finite);
}

/// The host's order: blocks of 16384 elements, element i of a block to sum i mod 32, these added
/// pairwise, the blocks in order.
template <class T>
double sum_in_order(std::vector<std::vector<T>> const& runs) {
  double total = 0;
  for (auto const& run : runs)
    for (std::size_t begin = 0; begin < run.size(); begin += 16384) {
      double sum[32] = {};
      for (std::size_t i = begin; i < std::min(run.size(), begin + 16384); ++i) {
        double const v = static_cast<float>(run[i]);
        sum[(i - begin) % 32] += v * v;
      }
      for (int half = 16; half > 0; half /= 2)
        for (int j = 0; j < half; ++j) sum[j] += sum[j + half];
      total += sum[0];
    }
  return total;
}

/// More runs than one launch takes, some empty.
template <class T>
struct ManyRuns {
  std::vector<std::vector<T>> values;
  std::vector<GradientRun> runs;
  ManyRuns() {
    std::int64_t const lengths[] = {0, 1, 31, 255, 4097, 16384, 16385, 40001};
    for (int k = 0; k < 300; ++k)
      values.push_back(numbers<T>(lengths[k % 8], 1.0f + static_cast<float>(k)));
    for (auto const& v : values) runs.push_back({v.data(), static_cast<std::int64_t>(v.size())});
  }
};

TYPED_TEST(GradientStatisticsTest, SumsStayWhereTheQueueComputes) {
  ManyRuns<TypeParam> many;
  Found const statistics = found(*this->q, many.runs, dtype_of<TypeParam>());
  EXPECT_EQ(statistics.sum_of_squares, sum_in_order(many.values));
  auto worker = memory::make_worker_queue("lane");
  for (Queue* const queue : {this->q.get(), worker.get()}) {
    double sums[2] = {-1.0, -1.0};
    gradient_statistics(*queue, sums, many.runs, dtype_of<TypeParam>());
    queue->record().wait("the sums", std::chrono::seconds(60));
    EXPECT_EQ(sums[0], statistics.sum_of_squares);
    EXPECT_EQ(sums[1], 0.0);
  }
  many.values[150].back() = TypeParam(-std::numeric_limits<float>::infinity());
  double sums[2] = {-1.0, -1.0};
  gradient_statistics(*this->q, sums, many.runs, dtype_of<TypeParam>());
  EXPECT_EQ(sums[1], 1.0);
  gradient_statistics(*this->q, sums, {}, dtype_of<TypeParam>());
  EXPECT_EQ(sums[0], 0.0);
  EXPECT_EQ(sums[1], 0.0);
}

/// The lanes of a device's team divide a block among them, in packs of 16 bytes where it begins at
/// a border, with the same bits where not.
TYPED_TEST(GradientStatisticsTest, LanesAddEveryElementOnceInAFixedOrder) {
  using T = TypeParam;
  constexpr std::int64_t lanes = 128, pack = 16 / sizeof(T);
  for (std::int64_t n : {1, 3, 8, 1000, 2048, 8191, 8192, 12289, 16384})
    for (std::int64_t shift : {0, 1, 3, 4}) {
      std::vector<T> memory(static_cast<std::size_t>(n + 3 * pack));
      auto const address = reinterpret_cast<std::uintptr_t>(memory.data());
      T* const in = memory.data() + (16 - address % 16) % 16 / sizeof(T) + shift;
      auto const values = numbers<T>(n, 100.0f);
      std::copy(values.begin(), values.end(), in);
      std::vector<double> expected(lanes);
      for (std::int64_t i = 0; i < n; ++i) {
        double const v = static_cast<float>(values[static_cast<std::size_t>(i)]);
        expected[static_cast<std::size_t>(i / pack % lanes)] += v * v;
      }
      for (std::int64_t lane = 0; lane < lanes; ++lane)
        ASSERT_EQ(detail::squares_of_lane(in, n, lane, lanes),
                  expected[static_cast<std::size_t>(lane)])
            << n << " elements at " << shift << ", lane " << lane;
    }
}

/// On a stream the partial sums are in memory of the device, which later calls use again.
TYPED_TEST(GradientStatisticsTest, OnAStream) {
  auto& device = test::FakeDevice::of_process();
  auto stream = memory::make_stream_queue("compute");
  ManyRuns<TypeParam> const many;
  memory::Buffer const result("sums", memory::Purpose::workspace, 2 * sizeof(double),
                              memory::MemorySpace::device);
  auto* const sums = static_cast<double*>(result.data());
  int allocations = 0;
  for (int repetition = 0; repetition < 3; ++repetition) {
    std::vector<GradientRun> const few(many.runs.begin(), many.runs.begin() + 8);
    double some[2] = {}, all[2] = {};
    gradient_statistics(*stream, sums, few, dtype_of<TypeParam>());
    memory::copy(*stream, some, sums, sizeof some);
    gradient_statistics(*stream, sums, many.runs, dtype_of<TypeParam>());
    memory::copy(*stream, all, sums, sizeof all);
    stream->record().wait("the sums", std::chrono::seconds(60));
    double const want = sum_in_order(many.values),
                 want_of_few =
                     sum_in_order<TypeParam>({many.values.begin(), many.values.begin() + 8});
    EXPECT_NEAR(all[0], want, 1e-13 * want);
    EXPECT_NEAR(some[0], want_of_few, 1e-13 * want_of_few);
    EXPECT_TRUE(all[1] == 0.0 && some[1] == 0.0);
    if (repetition > 0) {
      EXPECT_EQ(device.allocations, allocations);
    }
    allocations = device.allocations;
  }
}

}  // namespace
}  // namespace tessera::kernels
