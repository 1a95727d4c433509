#include "tessera/kernels/norm/layer_norm.hpp"

#include "elementwise/column_sums_device.hpp"
#include "fake_device.hpp"
#include "fiber_thread_block.hpp"
#include "launch/element_types.hpp"
#include "norm/layer_norm_backward_device.hpp"
#include "norm/layer_norm_device.hpp"
#include "reference.hpp"

namespace tessera::kernels::test {
namespace {

constexpr float epsilon = 1e-5f;

struct Reference {
  Reals out, mean, rstd;
};
Reference normalize(Reals const& in, Reals const& gamma, Reals const& beta) {
  std::size_t const columns = gamma.size(), rows = in.size() / columns;
  Reference r{Reals(in.size()), Reals(rows), Reals(rows)};
  for (std::size_t row = 0; row < rows; ++row) {
    double sum = 0, squares = 0;
    for (std::size_t c = 0; c < columns; ++c) sum += in[row * columns + c];
    r.mean[row] = sum / static_cast<double>(columns);
    for (std::size_t c = 0; c < columns; ++c)
      squares += std::pow(in[row * columns + c] - r.mean[row], 2);
    r.rstd[row] =
        1.0 / std::sqrt(squares / static_cast<double>(columns) + static_cast<double>(epsilon));
    for (std::size_t c = 0; c < columns; ++c)
      r.out[row * columns + c] =
          (in[row * columns + c] - r.mean[row]) * r.rstd[row] * gamma[c] + beta[c];
  }
  return r;
}

/// sum(dout * layer_norm(in)), whose gradient the backward pass computes.
double loss(Reals const& in, Reals const& gamma, Reals const& beta, Reals const& dout) {
  Reals const out = normalize(in, gamma, beta).out;
  double sum = 0;
  for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[i];
  return sum;
}

struct Gradients {
  Reals din, dgamma, dbeta;
};
Gradients gradients(Reals const& in, Reals const& gamma, Reals const& beta, Reals const& dout) {
  std::size_t const columns = gamma.size(), rows = in.size() / columns;
  Reference const r = normalize(in, gamma, beta);
  Gradients g{Reals(in.size()), Reals(columns), Reals(columns)};
  for (std::size_t row = 0; row < rows; ++row) {
    double h = 0, hx = 0;
    auto const normal = [&](std::size_t c) {
      return (in[row * columns + c] - r.mean[row]) * r.rstd[row];
    };
    for (std::size_t c = 0; c < columns; ++c) {
      double const d = dout[row * columns + c];
      h += d * gamma[c] / static_cast<double>(columns);
      hx += d * gamma[c] * normal(c) / static_cast<double>(columns);
      g.dgamma[c] += d * normal(c);
      g.dbeta[c] += d;
    }
    for (std::size_t c = 0; c < columns; ++c)
      g.din[row * columns + c] =
          r.rstd[row] * (dout[row * columns + c] * gamma[c] - h - normal(c) * hx);
  }
  return g;
}

struct Case : KernelTest {
  struct Data {
    Array in, gamma, beta, out, dout, mean, rstd;
    Data(Dtype t, std::int64_t rows, std::int64_t columns)
        : in(t, {rows, columns}),
          gamma(t, {columns}),
          beta(t, {columns}),
          out(t, {rows, columns}),
          dout(t, {rows, columns}),
          mean(Dtype::fp32, {rows}),
          rstd(Dtype::fp32, {rows}) {
      in.randomize(1, 2.0, 0.5);
      gamma.randomize(2, 0.5, 1.0);
      beta.randomize(3);
      dout.randomize(4);
    }
    LayerNormWeights weights() { return {gamma.view(), beta.view(), epsilon}; }
    LayerNormOutput output() { return {out.view(), mean.view(), rstd.view()}; }
  };
};
using LayerNorm = Case;
INSTANTIATE_TEST_SUITE_P(Dtypes, LayerNorm, all_dtypes(), dtype_test_name);

TEST_P(LayerNorm, Forward) {
  for (std::int64_t rows : {1, 7}) {
    for (std::int64_t columns : {1, 3, 255, 256, 257, 768, 1600}) {
      Data d(dtype, rows, columns);
      layer_norm(*queue, d.weights(), d.output(), d.in.view());
      Reference const want = normalize(d.in.values(), d.gamma.values(), d.beta.values());
      expect_close(d.out, want.out);
      expect_close(d.mean, want.mean);
      expect_close(d.rstd, want.rstd);
    }
  }
}

TEST_P(LayerNorm, LargeMeanDoesNotCancel) {
  Data d(Dtype::fp32, 3, 768);
  d.in.randomize(5, 1.0, 1000.0);
  layer_norm(*queue, d.weights(), d.output(), d.in.view());
  expect_close(d.out, normalize(d.in.values(), d.gamma.values(), d.beta.values()).out, 2e-4);
}

TEST_P(LayerNorm, WithResidualAndDropout) {
  for (float p : {0.0f, 0.2f}) {
    Data d(dtype, 5, 301);
    Array branch(dtype, {5, 301}), sum(dtype, {5, 301});
    branch.randomize(6);
    Dropout const drop{p, 8, 9, 10};
    Reals want = d.in.values();
    Reals const factor = dropout_factors(drop, d.in.numel());
    for (std::size_t i = 0; i < want.size(); ++i)
      want[i] += branch.get(static_cast<std::int64_t>(i)) * factor[i];
    residual_layer_norm(*queue, d.weights(), sum.view(), d.output(),
                        {d.in.view(), branch.view(), drop});
    expect_close(sum, want);
    expect_close(d.out, normalize(sum.values(), d.gamma.values(), d.beta.values()).out);
    Array apart(dtype, {5, 301});
    residual_add(*queue, apart.view(), d.in.view(), branch.view(), drop);
    EXPECT_TRUE(apart == sum) << "the fused kernel and residual_add agree";
  }
}

/// Inputs, outputs and references of one backward pass.
struct BackwardCase {
  Case::Data d;
  Array din, dgamma, dbeta;
  Gradients want, more;

  BackwardCase(Dtype dtype, std::int64_t rows, std::int64_t columns)
      : d(dtype, rows, columns),
        din(dtype, {rows, columns}),
        dgamma(Dtype::fp32, {columns}),
        dbeta(Dtype::fp32, {columns}) {
    auto const host = memory::make_inline_queue("reference");
    layer_norm(*host, d.weights(), d.output(), d.in.view());
    din.randomize(7);
    dgamma.randomize(8);
    dbeta.randomize(9);
    want = gradients(d.in.values(), d.gamma.values(), d.beta.values(), d.dout.values());
    more = want;
    for (std::size_t i = 0; i < more.din.size(); ++i)
      more.din[i] += din.get(static_cast<std::int64_t>(i));
    for (std::size_t c = 0; c < more.dgamma.size(); ++c) {
      more.dgamma[c] += dgamma.get(static_cast<std::int64_t>(c));
      more.dbeta[c] += dbeta.get(static_cast<std::int64_t>(c));
    }
  }
  void expect(Gradients const& expected) const {
    expect_close(din, expected.din, 3e-6);
    expect_close(dgamma, expected.dgamma, 3e-6);
    expect_close(dbeta, expected.dbeta, 3e-6);
  }
  bool same_bits(BackwardCase const& other) const {
    return din == other.din && dgamma == other.dgamma && dbeta == other.dbeta;
  }
};

void check_backward(Queue& q, Dtype dtype) {
  for (std::int64_t rows : {1, 16, 37, 2100}) {
    for (std::int64_t columns : {3, 257, 768}) {
      if (rows > 1000 && columns != 257) continue;
      BackwardCase p(dtype, rows, columns);
      Array workspace(Dtype::fp32, {layer_norm_backward_workspace(q, rows, columns)});
      workspace.randomize(10);
      auto const run = [&](bool accumulate, Gradients const& expected) {
        WriteMode const mode = accumulate ? WriteMode::add : WriteMode::overwrite;
        layer_norm_backward(
            q, {{p.din.view(), mode}, p.dgamma.view(), p.dbeta.view(), mode},
            {p.d.dout.view(), p.d.in.view(), p.d.mean.view(), p.d.rstd.view(), p.d.gamma.view()},
            workspace.view());
        q.record().wait("layer norm", std::chrono::seconds(60));
        p.expect(expected);
      };
      run(true, p.more);
      run(false, p.want);
      Array const first = p.dgamma, second = p.dbeta;
      run(false, p.want);
      EXPECT_TRUE(first == p.dgamma && second == p.dbeta) << "two runs give the same bits";
    }
  }
}

TEST_P(LayerNorm, Backward) { check_backward(*queue, dtype); }

TEST_P(LayerNorm, BackwardOnAStream) {
  tessera::test::FakeDevice device;
  check_backward(*memory::make_stream_queue("compute"), dtype);
}

/// make(type, threads) gives the rule of a device for rows of @p columns; it runs in blocks of that
/// many threads.
template <class Make>
void run_in_thread_blocks(Dtype dtype, std::int64_t columns, FiberOrder order, Make const& make) {
  detail::with_type(dtype, "test", [&](auto tag) {
    using T = typename decltype(tag)::type;
    ASSERT_TRUE(detail::with_norm_team<T>(columns, [&](auto threads) {
      auto const rule = make(tag, threads);
      FiberThreadBlock<decltype(threads)::value>(order).run(rule, rule.teams());
    }));
  });
}

template <class T, int Threads>
detail::TeamNormalize<T, Threads> rule_of(Case::Data& d, ConstTensorView in) {
  return {d.out.view().as<T>(), d.mean.view().as<float>(), d.rstd.view().as<float>(),
          in.as<T>(),           d.gamma.view().as<T>(),    d.beta.view().as<T>(),
          d.mean.numel(),       d.gamma.numel(),           epsilon};
}

TEST_P(LayerNorm, DeviceRulesInBlocksOfThreads) {
  for (std::int64_t rows : {1, 3, 10}) {
    for (std::int64_t columns : {8, 48, 768, 1600, 2048}) {
      SCOPED_TRACE(::testing::Message() << rows << " rows of " << columns);
      Data d(dtype, rows, columns), again = d;
      auto const run = [&](Data& to, FiberOrder order) {
        run_in_thread_blocks(dtype, columns, order, [&](auto tag, auto threads) {
          return rule_of<typename decltype(tag)::type, decltype(threads)::value>(to, to.in.view());
        });
      };
      run(d, FiberOrder::ascending);
      run(again, FiberOrder::descending);
      Reference const want = normalize(d.in.values(), d.gamma.values(), d.beta.values());
      expect_close(d.out, want.out);
      expect_close(d.mean, want.mean);
      expect_close(d.rstd, want.rstd);
      EXPECT_TRUE(d.out == again.out && d.mean == again.mean && d.rstd == again.rstd)
          << "the order of the threads does not show";
    }
  }
}

TEST_P(LayerNorm, DeviceRulesWithResidualAndDropout) {
  for (float p : {0.0f, 0.2f}) {
    std::int64_t const rows = 6, columns = 776;
    Data d(dtype, rows, columns);
    Array branch(dtype, {rows, columns}), sum(dtype, {rows, columns}),
        apart(dtype, {rows, columns});
    branch.randomize(6);
    Dropout const drop{p, 8, 9, 10};
    run_in_thread_blocks(dtype, columns, FiberOrder::ascending, [&](auto tag, auto threads) {
      using T = typename decltype(tag)::type;
      constexpr int size = decltype(threads)::value;
      return detail::TeamResidualNormalize<T, size>{
          sum.view().as<T>(), d.in.view().template as<T>(), branch.view().as<T>(),
          detail::DropoutFactors(drop), rule_of<T, size>(d, sum.view())};
    });
    residual_add(*queue, apart.view(), d.in.view(), branch.view(), drop);
    EXPECT_TRUE(apart == sum) << "the sum is that of residual_add, bit for bit";
    expect_close(d.out, normalize(sum.values(), d.gamma.values(), d.beta.values()).out);
  }
}

/// Both launches of a device.
void run_backward_in_thread_blocks(BackwardCase& p, FiberOrder order, bool accumulate) {
  std::int64_t const rows = p.d.mean.numel(), columns = p.d.gamma.numel(),
                     chunk = detail::rows_per_norm_chunk(rows), chunks = (rows + chunk - 1) / chunk;
  std::vector<float> parts(static_cast<std::size_t>(2 * columns * chunks), std::nanf(""));
  run_in_thread_blocks(p.d.in.dtype(), columns, order, [&](auto tag, auto threads) {
    using T = typename decltype(tag)::type;
    return detail::TeamNormalizeBackward<T, decltype(threads)::value>{
        p.din.view().as<T>(),
        p.d.dout.view().template as<T>(),
        p.d.in.view().template as<T>(),
        p.d.mean.view().template as<float>(),
        p.d.rstd.view().template as<float>(),
        p.d.gamma.view().template as<T>(),
        parts.data(),
        rows,
        columns,
        chunk,
        accumulate};
  });
  auto const last = detail::sum_of_column_parts<float, detail::column_parts_threads>(
      {p.dgamma.view().as<float>(), p.dbeta.view().as<float>(), columns, accumulate},
      {parts.data(), chunks, 2 * columns});
  FiberThreadBlock<detail::column_parts_threads>(order).run(last, last.teams());
}

TEST_P(LayerNorm, DeviceRulesOfTheBackwardPass) {
  for (std::int64_t rows : {1, 3, 37, 70}) {
    for (std::int64_t columns : {8, 48, 768, 1600}) {
      if (rows == 70 && columns == 1600) continue;
      SCOPED_TRACE(::testing::Message() << rows << " rows of " << columns);
      BackwardCase a(dtype, rows, columns), b = a, c = a;
      run_backward_in_thread_blocks(a, FiberOrder::ascending, true);
      run_backward_in_thread_blocks(b, FiberOrder::descending, true);
      run_backward_in_thread_blocks(c, FiberOrder::ascending, false);
      a.expect(a.more);
      c.expect(c.want);
      EXPECT_TRUE(a.same_bits(b)) << "the order of the threads does not show";
    }
  }
}

TEST(LayerNormTeams, ServeWhatDividesIntoSixteenBytes) {
  auto const threads_of = [](std::int64_t columns) {
    int out = 0;
    detail::with_norm_team<bfloat16>(columns,
                                     [&](auto threads) { out = decltype(threads)::value; });
    return out;
  };
  EXPECT_EQ(threads_of(768), 128);
  EXPECT_EQ(threads_of(1600), 256);
  EXPECT_EQ(threads_of(4096), 512);
  EXPECT_EQ(threads_of(4104), 0) << "more than 512 threads";
  EXPECT_EQ(threads_of(769), 0);
  EXPECT_EQ(threads_of(7), 0);
}

TEST(LayerNormTeams, KeepOnlyAlignedRowsInRegisters) {
  alignas(16) static std::byte memory[64];
  auto const* const aligned = reinterpret_cast<float const*>(memory);
  EXPECT_TRUE((detail::fits_registers<float>(768, aligned, aligned)));
  EXPECT_FALSE((detail::fits_registers<float>(768, aligned, aligned + 1)));
  EXPECT_FALSE((detail::fits_registers<float>(767, aligned)));
  EXPECT_FALSE((detail::fits_registers<float>(2052, aligned))) << "more than 512 packs";
}

TEST(LayerNormReference, AgreesWithFiniteDifferences) {
  Case::Data d(Dtype::fp32, 3, 11);
  Reals const in = d.in.values(), gamma = d.gamma.values(), beta = d.beta.values(),
              dout = d.dout.values();
  Gradients const g = gradients(in, gamma, beta, dout);
  double const h = 1e-5;
  for (std::size_t i = 0; i < in.size(); ++i) {
    Reals up = in, down = in;
    up[i] += h;
    down[i] -= h;
    EXPECT_NEAR(g.din[i], (loss(up, gamma, beta, dout) - loss(down, gamma, beta, dout)) / (2 * h),
                1e-7);
  }
  for (std::size_t c = 0; c < gamma.size(); ++c) {
    Reals up = gamma, down = gamma;
    up[c] += h;
    down[c] -= h;
    EXPECT_NEAR(g.dgamma[c], (loss(in, up, beta, dout) - loss(in, down, beta, dout)) / (2 * h),
                1e-7);
    up = down = beta;
    up[c] += h;
    down[c] -= h;
    EXPECT_NEAR(g.dbeta[c], (loss(in, gamma, up, dout) - loss(in, gamma, down, dout)) / (2 * h),
                1e-7);
  }
}

}  // namespace
}  // namespace tessera::kernels::test
