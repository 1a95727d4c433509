#include "optimizers/table.hpp"

#include <gtest/gtest.h>

#include "tessera/core/error.hpp"
#include "trajectory.hpp"
#include "update_case.hpp"

namespace tessera::optim::test {
namespace {

using kernels::test::positive_numbers;

TEST(Adafactor, EqualsTransformers) { expect_trajectories("Adafactor", "adafactor.json"); }

TEST(Adafactor, KeepsOneValuePerRowAndColumn) {
  auto const spec = make_spec("Adafactor");
  EXPECT_EQ(spec.state_names(),
            (std::vector<std::string>{"fp32", "exp_avg_sq_row", "exp_avg_sq_col"}));
  EXPECT_EQ(make_spec("Adafactor", {{"beta1", 0.9}}).states[0].name, "exp_avg");
  EXPECT_EQ(spec.states[1].extent, Extent::per_column);
}

TEST(Adafactor, RefusesWarmupWithoutRelativeStep) {
  EXPECT_THROW((void)make_spec("Adafactor", {{"warmup_init", 1.0}}), ConfigError);
  EXPECT_THROW((void)make_spec("Adafactor", {{"decay_rate", 0.8}}), ConfigError);
}

/// Infinite gradients enter the sums, but neither weights nor means.
TEST(Adafactor, ASkippedStepChangesNothing) {
  auto const queue = memory::make_inline_queue("compute");
  auto const optimizer = make_optimizer(make_spec("Adafactor"));
  Floats weights{1.0f, 2.0f, 3.0f, 4.0f};
  std::vector<Floats> states{{0.5f, 0.25f}, {1.0f, 2.0f}};
  auto const before = states;
  kernels::GradientControl const skip{1.0, 1};
  Halves{*optimizer, *queue, {2, 2}, 1}.update(weights, states, {INFINITY, 1.0f, 1.0f, NAN},
                                               {3, 0.1, &skip});
  EXPECT_EQ(states, before);
  EXPECT_EQ(weights, (Floats{1.0f, 2.0f, 3.0f, 4.0f}));
}

/// A matrix and a vector, cut into two runs each, as one rank would get them.
struct AdafactorCase {
  std::int64_t rows = 301, columns = 517, vector = 3000;
  Floats weights = positive_numbers(rows * columns + vector, 1),
         gradients = positive_numbers(rows * columns + vector, 2),
         means = positive_numbers(rows + columns + vector + 1, 3);
  std::vector<std::uint16_t> rounded = std::vector<std::uint16_t>(weights.size());
  std::vector<double> sums =
      std::vector<double>(static_cast<std::size_t>(2 + rows + columns + 2 + vector + 1));
  double squares[2] = {};
  kernels::GradientControl control{0.5, 0};
  Dtype gradient_dtype = Dtype::fp32;
  std::vector<bfloat16> narrow{};  ///< gradients, where their dtype is bf16
  std::unique_ptr<Optimizer> optimizer = make_optimizer(make_spec(
      "Adafactor", {{"decay_rate", -1.0}, {"scale_parameter", 1.0}, {"weight_decay", 0.1}},
      one_group()));  // means of step 4 decay by 0.75

  SummingOptimizer const& adafactor() const {
    return dynamic_cast<SummingOptimizer const&>(*optimizer);
  }
  StepControl step() const { return {4, 0.1, &control}; }
  double* sums_of(int parameter) { return sums.data() + (parameter == 0 ? 0 : 2 + rows + columns); }
  ParameterSums places() { return {{{{sums_of(0)}, {sums_of(1)}}, {{squares}, {squares + 1}}}}; }
  std::vector<CompleteParameter> complete() {
    float* const of_vector = means.data() + rows + columns;
    return {{{rows, columns}, {means.data(), means.data() + rows}, {sums_of(0), squares}},
            {{vector}, {of_vector, of_vector + vector}, {sums_of(1), squares + 1}}};
  }
  /// @param first,last which elements of each parameter, as parts of 3
  Segments parts(int first, int last) {
    Segments out{{}, gradient_dtype, Dtype::bf16};
    for (auto const& p : complete()) {
      bool const is_vector = p.shape.size() == 1;
      std::int64_t const base = is_vector ? rows * columns : 0,
                         n = is_vector ? vector : rows * columns;
      std::int64_t const begin = n * first / 3, numel = n * last / 3 - begin;
      void const* const gradient = narrow.empty()
                                       ? static_cast<void const*>(gradients.data() + base + begin)
                                       : narrow.data() + base + begin;
      out.list.push_back({weights.data() + base + begin,
                          {nullptr, nullptr},
                          gradient,
                          rounded.data() + base + begin,
                          numel,
                          0,
                          {{p.shape, n, begin, 0, numel}},
                          {p.states}});
    }
    return out;
  }

  void update(memory::Queue& q) {
    auto const all = parts(0, 3);
    for (int round : {0, 1}) {
      adafactor().sum(q, round, all, step(), places());
      adafactor().update_states(q, round, complete(), step());
    }
    adafactor().update_with(q, all, step(), places());
    q.record().wait("the step", std::chrono::seconds(60));
  }
};

TEST(Adafactor, SumsAreThoseOfRowsAndColumns) {
  tessera::test::FakeDevice device;
  for (auto const& q : {memory::make_inline_queue("compute"), memory::make_worker_queue("worker"),
                        memory::make_stream_queue("compute")}) {
    AdafactorCase c;
    std::vector<double> total(c.sums.size());
    for (int part = 0; part < 3; ++part) {  // the ranks' parts
      std::fill(c.sums.begin(), c.sums.end(), 0.0);
      c.adafactor().sum(*q, 0, c.parts(part, part + 1), c.step(), c.places());
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

TEST(Adafactor, SumsInOneSweepHaveTheBitsOfSeparateOnes) {
  tessera::test::FakeDevice device;
  auto const host = memory::make_inline_queue("compute");
  auto const stream = memory::make_stream_queue("compute");  // separate sweeps on host threads
  for (Dtype dtype : {Dtype::fp32, Dtype::bf16})
    for (int part = 0; part < 3; ++part) {
      AdafactorCase a, b;
      for (AdafactorCase* c : {&a, &b}) {
        c->gradient_dtype = dtype;
        if (dtype == Dtype::bf16) c->narrow = {c->gradients.begin(), c->gradients.end()};
        memory::Queue& q = c == &a ? *host : *stream;
        c->adafactor().sum(q, 0, c->parts(part, part + 1), c->step(), c->places());
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
  AdafactorCase a, b;
  a.update(*host);
  b.update(*stream);
  for (std::size_t k = 0; k < a.weights.size(); ++k)
    ASSERT_NEAR(a.weights[k], b.weights[k], 1e-6) << k;  // sums in another order
  for (std::size_t k = 0; k < a.means.size(); ++k) ASSERT_NEAR(a.means[k], b.means[k], 1e-6) << k;
  EXPECT_EQ(static_cast<float>(bfloat16(a.weights[5])),
            static_cast<float>(std::bit_cast<bfloat16>(a.rounded[5])));
}

TEST(Adafactor, ASkippedStepOfMatricesChangesNothing) {
  auto const host = memory::make_inline_queue("compute");
  AdafactorCase c, before;
  c.control.skip = 1;
  c.update(*host);
  EXPECT_EQ(c.weights, before.weights);
  EXPECT_EQ(c.means, before.means);
  EXPECT_EQ(c.rounded, before.rounded);
}

TEST(Adafactor, RefusesRunsWithoutMeans) {
  auto const host = memory::make_inline_queue("compute");
  AdafactorCase c;
  auto parts = c.parts(0, 3);
  parts.list[1].parameter_states[0][0] = nullptr;
  EXPECT_THROW(c.adafactor().update_with(*host, parts, c.step(), c.places()), InternalError);
  parts = c.parts(0, 3);
  parts.list[0].parameters[0].parameter_offset = 1;
  EXPECT_THROW(c.adafactor().sum(*host, 0, parts, c.step(), c.places()), InternalError);
}

}  // namespace
}  // namespace tessera::optim::test
