#include "tessera/kernels/loss/cross_entropy.hpp"

#include "decoder_oracle.hpp"
#include "fake_device.hpp"
#include "fiber_thread_block.hpp"
#include "launch/element_types.hpp"
#include "loss/cross_entropy_device.hpp"

namespace tessera::kernels::test {
namespace {

TESSERA_KERNEL_SUITE(CrossEntropy);

struct Reference {
  Reals losses, dlogits;
};
Reference reference(Array const& in, Array const& targets, std::int64_t columns, double scale,
                    double cap = 0.0, double smoothing = 0.0) {
  Reals logit = in.values();
  if (cap > 0.0)
    for (double& x : logit) x = cap * std::tanh(x / cap);
  struct {
    Reals const& values;
    double get(std::int64_t i) const { return values[static_cast<std::size_t>(i)]; }
  } const logits{logit};
  std::int64_t const rows = targets.numel();
  Reference r{Reals(static_cast<std::size_t>(rows)),
              Reals(static_cast<std::size_t>(rows * columns))};
  for (std::int64_t row = 0; row < rows; ++row) {
    auto const target = static_cast<std::int64_t>(targets.get(row));
    if (target < 0) continue;
    double most = -1e300, sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) most = std::max(most, logits.get(row * columns + c));
    for (std::int64_t c = 0; c < columns; ++c)
      sum += std::exp(logits.get(row * columns + c) - most);
    double const log_sum = most + std::log(sum);
    double mean = 0.0;
    for (std::int64_t c = 0; c < columns; ++c)
      mean += logits.get(row * columns + c) / static_cast<double>(columns);
    r.losses[static_cast<std::size_t>(row)] =
        log_sum - (1.0 - smoothing) * logits.get(row * columns + target) - smoothing * mean;
    for (std::int64_t c = 0; c < columns; ++c)
      r.dlogits[static_cast<std::size_t>(row * columns + c)] =
          scale *
          (std::exp(logits.get(row * columns + c) - log_sum) -
           (c == target ? 1.0 - smoothing : 0.0) - smoothing / static_cast<double>(columns)) *
          (cap > 0.0 ? 1.0 - std::pow(logits.get(row * columns + c) / cap, 2) : 1.0);
  }
  return r;
}

struct Data {
  Array logits, targets, losses, dlogits;
  Data(Dtype in, Dtype out, std::int64_t rows, std::int64_t columns)
      : logits(in, {rows, columns}),
        targets(Dtype::int32, {rows}),
        losses(Dtype::fp32, {rows}),
        dlogits(out, {rows, columns}) {
    logits.randomize(1, 8.0);
    for (std::int64_t r = 0; r < rows; ++r)
      targets.set(r, r % 3 == 1 ? -100 : (r * 7919) % columns);
  }
};

void check(Queue& q, Dtype dtype, float cap = 0.0f, float smoothing = 0.0f) {
  auto const run = [&](TensorView losses, TensorView dlogits, Data& d, float scale) {
    cross_entropy(q, {scale, 0, cap, smoothing}, losses, dlogits, d.logits.view(),
                  d.targets.view());
    q.record().wait("cross-entropy", std::chrono::seconds(60));
  };
  for (std::int64_t columns : {1, 2, 7, 255, 257, 1000, 5003}) {
    if (columns == 1 && smoothing > 0.0f) continue;  // 0 up to rounding
    for (Dtype in : {Dtype::fp32, dtype}) {
      Data d(in, dtype, 7, columns);
      float const scale = 0.125f;
      Reference const want = reference(d.logits, d.targets, columns, scale, cap, smoothing);
      run(d.losses.view(), d.dlogits.view(), d, scale);
      expect_close(d.losses, want.losses);
      expect_close(d.dlogits, want.dlogits, 5e-7);
      Array losses(Dtype::fp32, {7});
      run(losses.view(), {}, d, scale);
      EXPECT_TRUE(losses == d.losses) << "losses alone";
      if (in != dtype) continue;
      run(losses.view(), d.logits.view(), d, scale);
      EXPECT_TRUE(d.logits == d.dlogits) << "gradient in place of the logits";
      EXPECT_TRUE(losses == d.losses);
    }
  }
}

TEST_P(CrossEntropy, LossesAndGradients) { check(*queue, dtype); }

TEST_P(CrossEntropy, LossesAndGradientsOnAStream) {
  tessera::test::FakeDevice device;
  check(*memory::make_stream_queue("compute"), dtype);
}

TEST_P(CrossEntropy, WithSmoothLabels) {
  for (float smoothing : {0.1f, 1.0f}) check(*queue, dtype, 0.0f, smoothing);
  check(*queue, dtype, 6.0f, 0.1f);
}

TEST_P(CrossEntropy, WithSmoothLabelsOnAStream) {
  tessera::test::FakeDevice device;
  check(*memory::make_stream_queue("compute"), dtype, 0.0f, 0.1f);
}

/// Stored by tests/oracles/label_smoothing.py: the LabelSmoother of transformers.
TEST(CrossEntropyOracle, OfSmoothLabelsEqualsTransformers) {
  auto const queue = memory::make_inline_queue("compute");
  auto const oracle =
      ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/label_smoothing.json");
  for (auto const& stored : oracle.at("cases").as_array()) {
    Array const logits = array_of(stored.at("logits"), Dtype::fp32),
                targets = array_of(stored.at("targets"), Dtype::int32);
    std::int64_t const active = stored.at("active").as_int();
    Array losses(Dtype::fp32, {targets.numel()}), dlogits = logits;
    CrossEntropyOptions options{.gradient_scale = 1.0f / static_cast<float>(active)};
    options.label_smoothing = static_cast<float>(stored.at("epsilon").as_double());
    cross_entropy(*queue, options, losses.view(), dlogits.view(), logits.view(), targets.view());
    double sum = 0.0;
    for (double const loss : losses.values()) sum += loss;
    EXPECT_NEAR(sum / static_cast<double>(active), stored.at("loss").as_double(), 2e-6);
    expect_close(dlogits, reals(stored.at("dlogits")), 5e-7);
  }
}

/// Loss and gradient of each row are those of plain cross-entropy times the target's probability.
TEST_P(CrossEntropy, DynamicFineTuningWeighsByTheProbability) {
  tessera::test::FakeDevice device;
  auto const stream = memory::make_stream_queue("compute");
  for (auto* const q : {queue.get(), stream.get()}) {
    Data plain(dtype, dtype, 5, 19), dynamic(dtype, dtype, 5, 19);
    cross_entropy(*q, {.gradient_scale = 0.5f}, plain.losses.view(), plain.dlogits.view(),
                  plain.logits.view(), plain.targets.view());
    cross_entropy(*q, {.gradient_scale = 0.5f, .dynamic = true}, dynamic.losses.view(),
                  dynamic.dlogits.view(), dynamic.logits.view(), dynamic.targets.view());
    q->record().wait("losses", std::chrono::minutes(1));
    for (std::int64_t r = 0; r < 5; ++r) {
      double const loss = plain.losses.get(r), p = std::exp(-loss);
      EXPECT_NEAR(dynamic.losses.get(r), loss * p, 1e-5 * loss);
      for (std::int64_t c = 0; c < 19; ++c)
        EXPECT_NEAR(dynamic.dlogits.get(r * 19 + c), p * plain.dlogits.get(r * 19 + c),
                    dtype == Dtype::fp32 ? 1e-6 : 4e-3);
    }
  }
}

TEST_P(CrossEntropy, OfCappedLogits) {
  for (float cap : {6.0f, 30.0f}) check(*queue, dtype, cap);
}

TEST_P(CrossEntropy, OfCappedLogitsOnAStream) {
  tessera::test::FakeDevice device;
  check(*memory::make_stream_queue("compute"), dtype, 6.0f);
}

TEST(CrossEntropyOracle, OfCappedLogitsEqualsTransformers) {
  auto const queue = memory::make_inline_queue("compute");
  auto const stored = decoder_oracle("capped_loss");
  Array const logits = array_of(stored.at("logits"), Dtype::fp32),
              targets = array_of(stored.at("targets"), Dtype::int32);
  Array losses(Dtype::fp32, {stored.at("rows").as_int()}), dlogits = logits;
  auto const cap = static_cast<float>(stored.at("cap").as_double());
  cross_entropy(*queue, {1.0f, 0, cap}, losses.view(), dlogits.view(), logits.view(),
                targets.view());
  expect_close(losses, reals(stored.at("losses")), 5e-7);
  expect_close(dlogits, reals(stored.at("dlogits")), 5e-7);
}

/// Rows of `stride` elements of which the first `columns` count; the others are NaN.
struct Padded {
  Array logits, dlogits;
  Padded(Data const& d, std::int64_t columns, std::int64_t stride)
      : logits(d.logits.dtype(), {d.targets.numel(), stride}),
        dlogits(d.dlogits.dtype(), {d.targets.numel(), stride}) {
    for (std::int64_t i = 0; i < logits.numel(); ++i) {
      logits.set(
          i, i % stride < columns ? d.logits.get(i / stride * columns + i % stride) : std::nan(""));
      dlogits.set(i, 3.0);
    }
  }
  Array packed(std::int64_t columns) const {
    std::int64_t const rows = logits.view().dim(0), stride = logits.view().dim(1);
    Array out(dlogits.dtype(), {rows, columns});
    for (std::int64_t i = 0; i < out.numel(); ++i)
      out.set(i, dlogits.get(i / columns * stride + i % columns));
    return out;
  }
};

TEST_P(CrossEntropy, OfRowsThatAreLongerThanTheVocabulary) {
  tessera::test::FakeDevice device;
  auto const stream = memory::make_stream_queue("compute");
  for (std::int64_t columns : {1, 257, 1000, 1003}) {
    Data d(Dtype::fp32, dtype, 5, columns);
    Reference const want = reference(d.logits, d.targets, columns, 0.5);
    for (Queue* q : {queue.get(), stream.get()}) {
      for (std::int64_t more :
           {std::int64_t{3}, (columns + 7) / 8 * 8 - columns, std::int64_t{64}}) {
        Padded p(d, columns, columns + more);
        cross_entropy(*q, {0.5f, columns}, d.losses.view(), p.dlogits.view(), p.logits.view(),
                      d.targets.view());
        q->record().wait("cross-entropy", std::chrono::seconds(60));
        expect_close(d.losses, want.losses);
        expect_close(p.packed(columns), want.dlogits, 5e-7);
      }
    }
  }
}

/// The rule of a device for every row in blocks of its size.
template <bool aligned>
void run_blocks(Data& d, Padded& p, std::int64_t columns, FiberOrder order, bool in_place = false,
                float smoothing = 0.0f) {
  detail::with_type(d.dlogits.dtype(), "test", [&](auto to) {
    using Out = typename decltype(to)::type;
    Out* const gradient =
        in_place ? static_cast<Out*>(p.logits.data()) : p.dlogits.view().template as<Out>();
    std::int64_t const rows = d.targets.numel(), stride = p.logits.view().dim(1);
    constexpr int threads = detail::cross_entropy_threads;
    detail::TeamCrossEntropy<Out, float, detail::PlainLogit, aligned, threads> const rule{
        d.losses.view().as<float>(),
        gradient,
        p.logits.view().as<float>(),
        d.targets.view().as<std::int32_t>(),
        columns,
        stride,
        0.5f,
        {1.0f - smoothing, smoothing / static_cast<float>(columns)},
        {}};
    FiberThreadBlock<threads>(order).run(rule, rows);
  });
}

TEST_P(CrossEntropy, DeviceRulesInBlocksOfThreads) {
  for (std::int64_t columns : {1, 7, 1000, 16385, 50257}) {
    SCOPED_TRACE(columns);
    Data a(Dtype::fp32, dtype, 2, columns), b = a;
    Reference const want = reference(a.logits, a.targets, columns, 0.5);
    Padded whole(a, columns, (columns + 7) / 8 * 8), odd(a, columns, columns + 1), again = whole;
    run_blocks<true>(a, whole, columns, FiberOrder::ascending);
    expect_close(a.losses, want.losses);
    expect_close(whole.packed(columns), want.dlogits, 5e-7);
    run_blocks<true>(b, again, columns, FiberOrder::descending);
    EXPECT_TRUE(a.losses == b.losses && whole.packed(columns) == again.packed(columns))
        << "the order of the threads does not show";
    run_blocks<false>(b, odd, columns, FiberOrder::ascending);
    expect_close(b.losses, want.losses);
    expect_close(odd.packed(columns), want.dlogits, 5e-7);
    if (dtype != Dtype::fp32) continue;
    run_blocks<true>(b, again, columns, FiberOrder::ascending, true);
    again.dlogits = again.logits;
    EXPECT_TRUE(again.packed(columns) == whole.packed(columns))
        << "gradient in place of the logits";
  }
}

TEST_P(CrossEntropy, DeviceRulesWithSmoothLabels) {
  for (std::int64_t columns : {7, 16385}) {
    Data d(Dtype::fp32, dtype, 2, columns);
    Reference const want = reference(d.logits, d.targets, columns, 0.5, 0.0, 0.25);
    Padded whole(d, columns, (columns + 7) / 8 * 8), odd(d, columns, columns + 1);
    run_blocks<true>(d, whole, columns, FiberOrder::ascending, false, 0.25f);
    expect_close(d.losses, want.losses);
    expect_close(whole.packed(columns), want.dlogits, 5e-7);
    run_blocks<false>(d, odd, columns, FiberOrder::descending, false, 0.25f);
    expect_close(d.losses, want.losses);
    expect_close(odd.packed(columns), want.dlogits, 5e-7);
  }
}

TEST_P(CrossEntropy, LargeLogitsDoNotOverflow) {
  Data d(dtype, dtype, 3, 300);
  d.logits.randomize(2, 30000.0);
  Reference const want = reference(d.logits, d.targets, 300, 1.0);
  cross_entropy(*queue, {}, d.losses.view(), d.dlogits.view(), d.logits.view(), d.targets.view());
  expect_close(d.losses, want.losses);
  expect_close(d.dlogits, want.dlogits);
}

TEST_P(CrossEntropy, NanIsNotHidden) {
  Data d(dtype, dtype, 1, 300);
  d.logits.set(200, std::nan(""));
  cross_entropy(*queue, {}, d.losses.view(), d.dlogits.view(), d.logits.view(), d.targets.view());
  EXPECT_TRUE(std::isnan(d.losses.get(0)));
}

void expect_finite_differences(double cap, double smoothing) {
  Data d(Dtype::fp32, Dtype::fp32, 4, 9);
  Reference const want = reference(d.logits, d.targets, 9, 1.0, cap, smoothing);
  for (std::int64_t i = 0; i < d.logits.numel(); ++i) {
    Array up = d.logits, down = d.logits;
    up.set(i, d.logits.get(i) + 1e-2);
    down.set(i, d.logits.get(i) - 1e-2);
    auto const row = static_cast<std::size_t>(i / 9);
    double const slope = (reference(up, d.targets, 9, 1.0, cap, smoothing).losses[row] -
                          reference(down, d.targets, 9, 1.0, cap, smoothing).losses[row]) /
                         (up.get(i) - down.get(i));
    EXPECT_NEAR(want.dlogits[static_cast<std::size_t>(i)], slope, 2e-5);
  }
}
TEST(CrossEntropyReference, AgreesWithFiniteDifferences) {
  for (double cap : {0.0, 6.0})
    for (double smoothing : {0.0, 0.2}) expect_finite_differences(cap, smoothing);
}

}  // namespace
}  // namespace tessera::kernels::test
