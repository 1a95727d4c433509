#include "tessera/kernels/norm/rms_norm.hpp"

#include "decoder_oracle.hpp"
#include "elementwise/column_sums_device.hpp"
#include "fake_device.hpp"
#include "fiber_thread_block.hpp"
#include "launch/element_types.hpp"
#include "norm/rms_norm_device.hpp"

namespace tessera::kernels::test {
namespace {

constexpr float epsilon = 1e-5f;

double rounded(double value, Dtype dtype) {
  Array one(dtype, {1});
  one.set(0, value);
  return one.get(0);
}

/// Rows of gamma's length. With fp32 rounding makes no difference to a reference in double.
struct Reference {
  Reals out, rstd;
};
Reference normalize(Reals const& in, Reals const& gamma, RmsNormWeights const& how,
                    Dtype dtype = Dtype::fp32) {
  std::size_t const columns = gamma.size(), rows = in.size() / columns;
  bool const round_first = how.rounding == RmsNormRounding::before_gamma && dtype != Dtype::fp32;
  Reference r{Reals(in.size()), Reals(rows)};
  for (std::size_t row = 0; row < rows; ++row) {
    double squares = 0;
    for (std::size_t c = 0; c < columns; ++c) squares += std::pow(in[row * columns + c], 2);
    r.rstd[row] =
        1.0 / std::sqrt(squares / static_cast<double>(columns) + static_cast<double>(how.epsilon));
    for (std::size_t c = 0; c < columns; ++c) {
      double const normal = in[row * columns + c] * r.rstd[row];
      r.out[row * columns + c] = (round_first ? rounded(normal, dtype) : normal) *
                                 (static_cast<double>(how.gamma_offset) + gamma[c]);
    }
  }
  return r;
}

struct Gradients {
  Reals din, dgamma;
};
Gradients gradients(Reals const& in, Reals const& gamma, RmsNormWeights const& how,
                    Reals const& dout) {
  std::size_t const columns = gamma.size(), rows = in.size() / columns;
  Reference const r = normalize(in, gamma, how);
  Gradients g{Reals(in.size()), Reals(columns)};
  for (std::size_t row = 0; row < rows; ++row) {
    double mean = 0;
    auto const normal = [&](std::size_t c) { return in[row * columns + c] * r.rstd[row]; };
    auto const h = [&](std::size_t c) {
      return dout[row * columns + c] * (static_cast<double>(how.gamma_offset) + gamma[c]);
    };
    for (std::size_t c = 0; c < columns; ++c) {
      mean += h(c) * normal(c) / static_cast<double>(columns);
      g.dgamma[c] += dout[row * columns + c] * normal(c);
    }
    for (std::size_t c = 0; c < columns; ++c)
      g.din[row * columns + c] = r.rstd[row] * (h(c) - normal(c) * mean);
  }
  return g;
}

struct Data {
  std::int64_t rows, columns;
  Array in, gamma, out, dout, rstd, din, dgamma;
  Data(Dtype t, std::int64_t r, std::int64_t c)
      : rows(r),
        columns(c),
        in(t, {r, c}),
        gamma(t, {c}),
        out(t, {r, c}),
        dout(t, {r, c}),
        rstd(Dtype::fp32, {r}),
        din(t, {r, c}),
        dgamma(Dtype::fp32, {c}) {
    in.randomize(1, 2.0, 0.3);
    gamma.randomize(2, 0.5, 0.4);
    dout.randomize(3);
    din.randomize(4);
    dgamma.randomize(5);
  }
  RmsNormWeights weights(float offset = 0.0f,
                         RmsNormRounding rounding = RmsNormRounding::before_gamma) {
    return {gamma.view(), epsilon, offset, rounding};
  }
  RmsNormOutput output() { return {out.view(), rstd.view()}; }
  Reference reference(RmsNormWeights const& how) const {
    return normalize(in.values(), gamma.values(), how, in.dtype());
  }
  void backward(Queue& q, RmsNormWeights const& how, WriteMode mode) {
    Array workspace(Dtype::fp32, {rms_norm_backward_workspace(q, rows, columns)});
    workspace.randomize(6);
    rms_norm_backward(q, how, {{din.view(), mode}, {dgamma.view(), mode}},
                      {dout.view(), in.view(), rstd.view()}, workspace.view());
    q.record().wait("RMS norm", std::chrono::seconds(60));
  }
};

Reals plus(Reals a, Reals const& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}
/// A normal number next to the middle of two 16-bit numbers may be rounded to either.
double error_of(Dtype dtype) { return dtype == Dtype::fp32 ? 1e-6 : 2.001 * rounding(dtype); }

TESSERA_KERNEL_SUITE(RmsNorm);

void check_forward(Queue& q, Dtype dtype) {
  for (std::int64_t rows : {1, 7})
    for (std::int64_t columns : {1, 3, 255, 256, 257, 768, 2048})
      for (float offset : {0.0f, 1.0f})
        for (auto rounding : {RmsNormRounding::before_gamma, RmsNormRounding::after_gamma}) {
          SCOPED_TRACE(::testing::Message() << rows << " rows of " << columns);
          Data d(dtype, rows, columns);
          RmsNormWeights const how = d.weights(offset, rounding);
          rms_norm(q, how, d.output(), d.in.view());
          q.record().wait("RMS norm", std::chrono::seconds(60));
          Reference const want = d.reference(how);
          expect_close(d.out, want.out,
                       rounding == RmsNormRounding::after_gamma ? 1e-6 : error_of(dtype));
          expect_close(d.rstd, want.rstd);
          Array const apart = d.out;
          rms_norm(q, how, {d.in.view(), d.rstd.view()}, d.in.view());
          q.record().wait("RMS norm", std::chrono::seconds(60));
          EXPECT_TRUE(d.in == apart) << "in place";
        }
}

TEST_P(RmsNorm, Forward) { check_forward(*queue, dtype); }

TEST_P(RmsNorm, ForwardOnAStream) {
  tessera::test::FakeDevice device;
  check_forward(*memory::make_stream_queue("compute"), dtype);
}

TEST_P(RmsNorm, RoundsBeforeOrAfterGamma) {
  if (dtype == Dtype::fp32) return;
  Data d(dtype, 4, 300);
  RmsNormWeights const before = d.weights(), after = d.weights(0.0f, RmsNormRounding::after_gamma);
  rms_norm(*queue, before, d.output(), d.in.view());
  Array const twice = d.out;
  rms_norm(*queue, after, d.output(), d.in.view());
  int different = 0;
  for (std::int64_t i = 0; i < d.out.numel(); ++i) different += d.out.get(i) != twice.get(i);
  EXPECT_GT(different, 100);
}

TEST_P(RmsNorm, WithResidualAndDropout) {
  for (float p : {0.0f, 0.2f})
    for (std::int64_t columns : {5, 301, 512}) {
      Data d(dtype, 5, columns);
      Array branch(dtype, {5, columns}), sum(dtype, {5, columns}), apart(dtype, {5, columns});
      branch.randomize(6);
      Dropout const drop{p, 8, 9, 10};
      residual_rms_norm(*queue, d.weights(), sum.view(), d.output(),
                        {d.in.view(), branch.view(), drop});
      residual_add(*queue, apart.view(), d.in.view(), branch.view(), drop);
      EXPECT_TRUE(apart == sum) << "the fused kernel and residual_add agree";
      Array const fused = d.out;
      rms_norm(*queue, d.weights(), d.output(), sum.view());
      EXPECT_TRUE(fused == d.out) << "the norm of the rounded sum";
    }
}

void check_backward(Queue& q, Dtype dtype) {
  for (std::int64_t rows : {1, 16, 37, 2100})
    for (std::int64_t columns : {3, 257, 768}) {
      if (rows > 1000 && columns != 257) continue;
      for (float offset : {0.0f, 1.0f}) {
        SCOPED_TRACE(::testing::Message() << rows << " rows of " << columns);
        Data d(dtype, rows, columns);
        RmsNormWeights const how = d.weights(offset);
        rms_norm(q, how, d.output(), d.in.view());
        Gradients const want = gradients(d.in.values(), d.gamma.values(), how, d.dout.values());
        Reals const din = plus(d.din.values(), want.din),
                    dgamma = plus(d.dgamma.values(), want.dgamma);
        d.backward(q, how, WriteMode::add);
        expect_close(d.din, din, 3e-6);
        expect_close(d.dgamma, dgamma, 3e-6);
        d.backward(q, how, WriteMode::overwrite);
        expect_close(d.din, want.din, 3e-6);
        expect_close(d.dgamma, want.dgamma, 3e-6);
        Data again = d;
        again.backward(q, how, WriteMode::overwrite);
        EXPECT_TRUE(again.din == d.din && again.dgamma == d.dgamma) << "two runs, the same bits";
      }
    }
}

TEST_P(RmsNorm, Backward) { check_backward(*queue, dtype); }

TEST_P(RmsNorm, BackwardOnAStream) {
  tessera::test::FakeDevice device;
  check_backward(*memory::make_stream_queue("compute"), dtype);
}

/// make(type, threads) gives the rule of a device for rows of @p columns; it runs in blocks of that
/// many threads.
template <class Make>
void run_in_thread_blocks(Dtype dtype, std::int64_t columns, FiberOrder order, Make const& make) {
  detail::with_type(dtype, "test", [&](auto tag) {
    ASSERT_TRUE(detail::with_norm_team<typename decltype(tag)::type>(columns, [&](auto threads) {
      auto const rule = make(tag, threads);
      FiberThreadBlock<decltype(threads)::value>(order).run(rule, rule.teams());
    }));
  });
}
template <class T, int Threads>
detail::TeamRmsNormalize<T, Threads> rule_of(Data& d, RmsNormWeights const& how, TensorView in) {
  return {d.out.view().as<T>(),
          d.rstd.view().as<float>(),
          in.as<T>(),
          detail::RmsGamma<T>(how),
          d.rows,
          d.columns,
          epsilon};
}

TEST_P(RmsNorm, DeviceRulesInBlocksOfThreads) {
  for (std::int64_t rows : {1, 3, 10})
    for (std::int64_t columns : {8, 48, 768, 2048})
      for (auto rounding : {RmsNormRounding::before_gamma, RmsNormRounding::after_gamma}) {
        SCOPED_TRACE(::testing::Message() << rows << " rows of " << columns);
        Data d(dtype, rows, columns), again = d;
        auto const run = [&](Data& to, FiberOrder order) {
          run_in_thread_blocks(dtype, columns, order, [&](auto tag, auto threads) {
            return rule_of<typename decltype(tag)::type, decltype(threads)::value>(
                to, to.weights(1.0f, rounding), to.in.view());
          });
        };
        run(d, FiberOrder::ascending);
        run(again, FiberOrder::descending);
        Reference const want = d.reference(d.weights(1.0f, rounding));
        expect_close(d.out, want.out,
                     rounding == RmsNormRounding::after_gamma ? 1e-6 : error_of(dtype));
        expect_close(d.rstd, want.rstd);
        EXPECT_TRUE(d.out == again.out && d.rstd == again.rstd)
            << "the order of the threads does not show";
      }
}

TEST_P(RmsNorm, DeviceRulesWithResidualAndDropout) {
  std::int64_t const rows = 6, columns = 776;
  Data d(dtype, rows, columns);
  Array branch(dtype, {rows, columns}), sum(dtype, {rows, columns}), apart(dtype, {rows, columns});
  branch.randomize(6);
  Dropout const drop{0.2f, 8, 9, 10};
  RmsNormWeights const how = d.weights();
  run_in_thread_blocks(dtype, columns, FiberOrder::ascending, [&](auto tag, auto threads) {
    using T = typename decltype(tag)::type;
    constexpr int size = decltype(threads)::value;
    return detail::TeamResidualNormalize<T, size, detail::TeamRmsNormalize<T, size>>{
        sum.view().as<T>(), d.in.view().template as<T>(), branch.view().as<T>(),
        detail::DropoutFactors(drop), rule_of<T, size>(d, how, sum.view())};
  });
  residual_add(*queue, apart.view(), d.in.view(), branch.view(), drop);
  EXPECT_TRUE(apart == sum) << "the sum is that of residual_add, bit for bit";
  expect_close(d.out, normalize(sum.values(), d.gamma.values(), how, dtype).out, error_of(dtype));
}

/// Both launches of a device.
void run_backward_in_thread_blocks(Data& d, RmsNormWeights const& how, FiberOrder order,
                                   bool accumulate) {
  std::int64_t const chunk = detail::rows_per_norm_chunk(d.rows),
                     chunks = (d.rows + chunk - 1) / chunk;
  std::vector<float> parts(static_cast<std::size_t>(d.columns * chunks), std::nanf(""));
  run_in_thread_blocks(d.in.dtype(), d.columns, order, [&](auto tag, auto threads) {
    using T = typename decltype(tag)::type;
    return detail::TeamRmsNormalizeBackward<T, decltype(threads)::value>{
        d.din.view().as<T>(),
        d.dout.view().template as<T>(),
        d.in.view().template as<T>(),
        d.rstd.view().as<float>(),
        detail::RmsGamma<T>(how),
        parts.data(),
        d.rows,
        d.columns,
        chunk,
        accumulate};
  });
  auto const last = detail::sum_of_column_parts<float, detail::column_parts_threads>(
      {.first = d.dgamma.view().as<float>(), .accumulate = accumulate},
      {parts.data(), chunks, d.columns});
  FiberThreadBlock<detail::column_parts_threads>(order).run(last, last.teams());
}

TEST_P(RmsNorm, DeviceRulesOfTheBackwardPass) {
  for (std::int64_t rows : {1, 3, 37, 70})
    for (std::int64_t columns : {8, 48, 768, 1600}) {
      if (rows == 70 && columns == 1600) continue;
      SCOPED_TRACE(::testing::Message() << rows << " rows of " << columns);
      Data a(dtype, rows, columns);
      RmsNormWeights const how = a.weights(1.0f);
      rms_norm(*queue, how, a.output(), a.in.view());
      Data b = a, c = a;
      Gradients const want = gradients(a.in.values(), a.gamma.values(), how, a.dout.values());
      run_backward_in_thread_blocks(a, how, FiberOrder::ascending, true);
      run_backward_in_thread_blocks(b, how, FiberOrder::descending, true);
      expect_close(a.din, plus(c.din.values(), want.din), 3e-6);
      expect_close(a.dgamma, plus(c.dgamma.values(), want.dgamma), 3e-6);
      EXPECT_TRUE(a.din == b.din && a.dgamma == b.dgamma)
          << "the order of the threads does not show";
      run_backward_in_thread_blocks(c, how, FiberOrder::ascending, false);
      expect_close(c.din, want.din, 3e-6);
      expect_close(c.dgamma, want.dgamma, 3e-6);
    }
}

/// Heads of the middle part of fused rows: each head by itself (gamma of head_dim), or all
/// together.
struct Fused {
  std::int64_t positions, row, first;
  int heads;
  std::int64_t width;
  Array rows, gamma, out, dout, rstd, dgamma;
  Fused(Dtype t, std::int64_t n, int h, std::int64_t w)
      : positions(n),
        row(h * w + 11),
        first(8),
        heads(h),
        width(w),
        rows(t, {n, row}),
        gamma(t, {w}),
        out(t, {n, row}),
        dout(t, {n, row}),
        rstd(Dtype::fp32, {n, h}),
        dgamma(Dtype::fp32, {w}) {
    rows.randomize(1, 2.0);
    gamma.randomize(2, 0.5, 1.0);
    dout.randomize(3);
    out.randomize(4);
  }
  HeadsView view(Array& x) const {
    return {
        static_cast<std::byte*>(x.data()) + static_cast<std::size_t>(first) * size_of(x.dtype()),
        row};
  }
  HeadNormShape shape() const { return {rows.dtype(), positions, heads, width}; }
  /// The heads of @p x one after another.
  Reals packed(Array const& x) const {
    Reals r;
    for (std::int64_t i = 0; i < x.numel(); ++i)
      if (i % row >= first && i % row < first + heads * width) r.push_back(x.get(i));
    return r;
  }
  Reals others(Array const& x) const {
    Reals r;
    for (std::int64_t i = 0; i < x.numel(); ++i)
      if (i % row < first || i % row >= first + heads * width) r.push_back(x.get(i));
    return r;
  }
};
Array as_array(Dtype dtype, Reals const& values) {
  Array out(dtype, {static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) out.set(static_cast<std::int64_t>(i), values[i]);
  return out;
}

void check_heads(Queue& q, Dtype dtype) {
  for (std::int64_t positions : {1, 5, 70})
    for (auto const& [heads, width] : {std::pair{3, 16}, std::pair{5, 7}, std::pair{1, 96}}) {
      SCOPED_TRACE(::testing::Message() << positions << " x " << heads << " heads of " << width);
      Fused f(dtype, positions, heads, width);
      RmsNormWeights const how{f.gamma.view(), epsilon, 0.0f, RmsNormRounding::after_gamma};
      Reals const untouched = f.others(f.out), in = f.packed(f.rows);
      rms_norm_heads(q, how, f.shape(), {f.view(f.out), f.rstd.view()}, f.view(f.rows));
      q.record().wait("RMS norm", std::chrono::seconds(60));
      Reference const want = normalize(in, f.gamma.values(), how);
      expect_close(as_array(dtype, f.packed(f.out)), want.out);
      expect_close(f.rstd, want.rstd);
      EXPECT_EQ(f.others(f.out), untouched);

      Array workspace(Dtype::fp32, {rms_norm_backward_workspace(q, positions * heads, width)});
      Gradients const slopes = gradients(in, f.gamma.values(), how, f.packed(f.dout));
      rms_norm_heads_backward(q, how, f.shape(), {f.view(f.dout), {f.dgamma.view()}},
                              {f.view(f.dout), f.view(f.rows), f.rstd.view()}, workspace.view());
      q.record().wait("RMS norm", std::chrono::seconds(60));
      expect_close(as_array(dtype, f.packed(f.dout)), slopes.din, 3e-6);
      expect_close(f.dgamma, slopes.dgamma, 3e-6);

      rms_norm_heads(q, how, f.shape(), {f.view(f.rows), f.rstd.view()}, f.view(f.rows));
      q.record().wait("RMS norm", std::chrono::seconds(60));
      EXPECT_EQ(f.packed(f.rows), f.packed(f.out)) << "in place";
    }
}

TEST_P(RmsNorm, Heads) { check_heads(*queue, dtype); }

TEST_P(RmsNorm, HeadsOnAStream) {
  tessera::test::FakeDevice device;
  check_heads(*memory::make_stream_queue("compute"), dtype);
}

TEST(RmsNormOracle, EqualsTransformers) {
  auto const queue = memory::make_inline_queue("compute");
  auto const stored = decoder_oracle("rms_norm");
  ASSERT_EQ(stored.size(), 6u);
  for (auto const& c : stored.as_array()) {
    std::string const family = c.at("family").as_string();
    Dtype const dtype = dtype_of(c);
    SCOPED_TRACE(family + " in " + std::string(name_of(dtype)));
    Array const in = array_of(c.at("in"), dtype), dout = array_of(c.at("dout"), dtype),
                gamma = array_of(c.at("gamma"), dtype);
    std::int64_t const rows = c.at("rows").as_int();
    Array out = in, din = in, dgamma = gamma, rstd(Dtype::fp32, {rows}),
          workspace(Dtype::fp32, {rms_norm_backward_workspace(*queue, rows, gamma.numel())});
    RmsNormWeights const how{
        gamma.view(), epsilon, family == "gemma" ? 1.0f : 0.0f,
        family == "llama" ? RmsNormRounding::before_gamma : RmsNormRounding::after_gamma};
    rms_norm(*queue, how, {out.view(), rstd.view()}, in.view());
    if (dtype == Dtype::fp32) {
      expect_close(out, reals(c.at("out")), 3e-7);
    } else {
      EXPECT_EQ(out.values(), array_of(c.at("out"), dtype).values()) << "the same bits";
    }
    rms_norm_backward(*queue, how, {{din.view()}, {dgamma.view()}},
                      {dout.view(), in.view(), rstd.view()}, workspace.view());
    // PyTorch rounds products of 16-bit numbers on the way
    double const error = dtype == Dtype::fp32 ? 1e-6 : 4 * rounding(dtype);
    expect_close(din, reals(c.at("din")), error);
    expect_close(dgamma, reals(c.at("dgamma")), error);
  }
}

TEST(RmsNormReference, AgreesWithFiniteDifferences) {
  Data d(Dtype::fp32, 3, 11);
  RmsNormWeights const how = d.weights(1.0f);
  Reals const in = d.in.values(), gamma = d.gamma.values(), dout = d.dout.values();
  Gradients const g = gradients(in, gamma, how, dout);
  auto const loss = [&](Reals const& x, Reals const& w) {
    Reals const out = normalize(x, w, how).out;
    double sum = 0;
    for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[i];
    return sum;
  };
  double const h = 1e-5;
  for (std::size_t i = 0; i < in.size(); ++i) {
    Reals up = in, down = in;
    up[i] += h;
    down[i] -= h;
    EXPECT_NEAR(g.din[i], (loss(up, gamma) - loss(down, gamma)) / (2 * h), 1e-7);
  }
  for (std::size_t c = 0; c < gamma.size(); ++c) {
    Reals up = gamma, down = gamma;
    up[c] += h;
    down[c] -= h;
    EXPECT_NEAR(g.dgamma[c], (loss(in, up) - loss(in, down)) / (2 * h), 1e-7);
  }
}

}  // namespace
}  // namespace tessera::kernels::test
