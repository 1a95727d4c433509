/// Its values are compared with stored ones in tests/optim.
#include "tessera/kernels/optimizer/adafactor.hpp"

#include <cmath>

#include "update_case.hpp"

namespace tessera::kernels::test {
namespace {

/// A matrix and a vector, cut into two runs each, as one rank would get them.
struct Case {
  std::int64_t rows = 301, columns = 517, vector = 3000;
  Floats weights = positive_numbers(rows * columns + vector, 1),
         gradients = positive_numbers(rows * columns + vector, 2),
         means = positive_numbers(rows + columns + vector + 1, 3);
  std::vector<std::uint16_t> rounded = std::vector<std::uint16_t>(weights.size());
  std::vector<double> sums = std::vector<double>(static_cast<std::size_t>(
      adafactor_sum_count(rows, columns) + adafactor_sum_count(vector, 1)));
  double squares[2] = {};
  GradientControl control{0.5, 0};

  AdafactorParameter matrix() {
    return {rows, columns, means.data(), means.data() + rows, sums.data(), squares};
  }
  AdafactorParameter single_column() {
    return {vector,
            1,
            means.data() + rows + columns,
            means.data() + rows + columns + vector,
            sums.data() + adafactor_sum_count(rows, columns),
            squares + 1};
  }
  /// @param first,last which elements of each parameter, as parts of 3
  AdafactorStep step(int first, int last) {
    AdafactorStep step;
    step.control = &control;
    step.weights_dtype = Dtype::bf16;
    step.beta2 = 0.75;
    step.scale_parameter = true;
    for (auto const& p : {matrix(), single_column()}) {
      std::int64_t const base = p.columns == 1 ? rows * columns : 0, n = p.rows * p.columns;
      std::int64_t const begin = n * first / 3, end = n * last / 3;
      step.runs.push_back({p, begin, end - begin, weights.data() + base + begin, nullptr,
                           gradients.data() + base + begin, rounded.data() + base + begin, 0.1,
                           0.1});
    }
    return step;
  }

  void update(Queue& q) {
    auto const all = step(0, 3);
    adafactor_sums(q, all);
    adafactor_means(q, {matrix(), single_column()}, all);
    adafactor_update_squares(q, all);
    adafactor(q, all);
    q.record().wait("the step", std::chrono::seconds(60));
  }
};

TEST(Adafactor, SumsAreThoseOfRowsAndColumns) {
  tessera::test::FakeDevice device;
  for (auto const& q : {memory::make_inline_queue("compute"), memory::make_worker_queue("worker"),
                        memory::make_stream_queue("compute")}) {
    Case c;
    std::vector<double> total(c.sums.size());
    for (int part = 0; part < 3; ++part) {  // the ranks' parts
      std::fill(c.sums.begin(), c.sums.end(), 0.0);
      adafactor_sums(*q, c.step(part, part + 1));
      q->record().wait("the sums", std::chrono::seconds(60));
      for (std::size_t k = 0; k < total.size(); ++k) total[k] += c.sums[k];
    }
    std::vector<double> want(total.size());
    for (std::int64_t i = 0; i < c.rows * c.columns; ++i) {
      double const g = 0.5 * c.gradients[static_cast<std::size_t>(i)],
                   p = c.weights[static_cast<std::size_t>(i)];
      want[0] += p * p;
      want[static_cast<std::size_t>(2 + i / c.columns)] += g * g;
      want[static_cast<std::size_t>(2 + c.rows + i % c.columns)] += g * g;
    }
    for (std::size_t k = 0; k < static_cast<std::size_t>(2 + c.rows + c.columns); ++k)
      EXPECT_NEAR(total[k], want[k], 1e-6 * want[k]) << k;
    double const g = 0.5 * c.gradients.back();
    EXPECT_NEAR(total[total.size() - 2], g * g, 1e-6 * g * g) << "the vector's last element";
    EXPECT_EQ(total.back(), 0.0) << "a single column has no sum";
  }
}

std::vector<bfloat16> rounded_to_bf16(Floats const& values) {
  return {values.begin(), values.end()};
}

TEST(Adafactor, SumsInOneSweepHaveTheBitsOfSeparateOnes) {
  tessera::test::FakeDevice device;
  auto const host = memory::make_inline_queue("compute");
  auto const stream = memory::make_stream_queue("compute");  // separate sweeps on host threads
  for (Dtype dtype : {Dtype::fp32, Dtype::bf16})
    for (int part = 0; part < 3; ++part) {
      Case a, b;
      for (Case* c : {&a, &b}) {
        auto step = c->step(part, part + 1);
        step.gradient_dtype = dtype;
        auto const narrow = rounded_to_bf16(c->gradients);
        if (dtype == Dtype::bf16)
          for (auto& r : step.runs)
            r.gradient =
                narrow.data() + (static_cast<float const*>(r.gradient) - c->gradients.data());
        Queue& q = c == &a ? *host : *stream;
        adafactor_sums(q, step);
        q.record().wait("the sums", std::chrono::seconds(60));
      }
      EXPECT_EQ(a.sums, b.sums) << part;
      EXPECT_GT(a.sums[0], 0.0);
    }
}

TEST(Adafactor, QueuesAgree) {
  tessera::test::FakeDevice device;
  auto const host = memory::make_inline_queue("compute");
  auto const stream = memory::make_stream_queue("compute");
  Case a, b;
  a.update(*host);
  b.update(*stream);
  for (std::size_t k = 0; k < a.weights.size(); ++k)
    ASSERT_NEAR(a.weights[k], b.weights[k], 1e-6) << k;  // sums in another order
  for (std::size_t k = 0; k < a.means.size(); ++k) ASSERT_NEAR(a.means[k], b.means[k], 1e-6) << k;
  EXPECT_EQ(static_cast<float>(bfloat16(a.weights[5])),
            static_cast<float>(std::bit_cast<bfloat16>(a.rounded[5])));
}

TEST(Adafactor, ASkippedStepChangesNothing) {
  auto const host = memory::make_inline_queue("compute");
  Case c, before;
  c.control.skip = 1;
  c.update(*host);
  EXPECT_EQ(c.weights, before.weights);
  EXPECT_EQ(c.means, before.means);
  EXPECT_EQ(c.rounded, before.rounded);
}

TEST(Adafactor, RefusesRunsWithoutMeans) {
  auto const host = memory::make_inline_queue("compute");
  Case c;
  auto step = c.step(0, 3);
  step.runs[1].parameter.row_means = nullptr;
  EXPECT_THROW(adafactor(*host, step), InternalError);
  step = c.step(0, 3);
  step.runs[0].offset = 1;
  EXPECT_THROW(adafactor_sums(*host, step), InternalError);
}

}  // namespace
}  // namespace tessera::kernels::test
