#include "tessera/kernels/layer_norm.hpp"

#include "reference.hpp"

namespace tessera::kernels::test {
namespace {

constexpr float epsilon = 1e-5f;

struct Reference {
  Reals out, mean, rstd;
};
Reference normalise(Reals const& in, Reals const& gamma, Reals const& beta) {
  std::size_t const columns = gamma.size(), rows = in.size() / columns;
  Reference r{Reals(in.size()), Reals(rows), Reals(rows)};
  for (std::size_t row = 0; row < rows; ++row) {
    double sum = 0, squares = 0;
    for (std::size_t c = 0; c < columns; ++c) sum += in[row * columns + c];
    r.mean[row] = sum / static_cast<double>(columns);
    for (std::size_t c = 0; c < columns; ++c) squares += std::pow(in[row * columns + c] - r.mean[row], 2);
    r.rstd[row] = 1.0 / std::sqrt(squares / static_cast<double>(columns) + static_cast<double>(epsilon));
    for (std::size_t c = 0; c < columns; ++c)
      r.out[row * columns + c] = (in[row * columns + c] - r.mean[row]) * r.rstd[row] * gamma[c] + beta[c];
  }
  return r;
}

/// sum(dout * layer_norm(in)), whose gradient the backward pass computes.
double loss(Reals const& in, Reals const& gamma, Reals const& beta, Reals const& dout) {
  Reals const out = normalise(in, gamma, beta).out;
  double sum = 0;
  for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[i];
  return sum;
}

struct Gradients {
  Reals din, dgamma, dbeta;
};
Gradients gradients(Reals const& in, Reals const& gamma, Reals const& beta, Reals const& dout) {
  std::size_t const columns = gamma.size(), rows = in.size() / columns;
  Reference const r = normalise(in, gamma, beta);
  Gradients g{Reals(in.size()), Reals(columns), Reals(columns)};
  for (std::size_t row = 0; row < rows; ++row) {
    double h = 0, hx = 0;
    auto const normal = [&](std::size_t c) { return (in[row * columns + c] - r.mean[row]) * r.rstd[row]; };
    for (std::size_t c = 0; c < columns; ++c) {
      double const d = dout[row * columns + c];
      h += d * gamma[c] / static_cast<double>(columns);
      hx += d * gamma[c] * normal(c) / static_cast<double>(columns);
      g.dgamma[c] += d * normal(c);
      g.dbeta[c] += d;
    }
    for (std::size_t c = 0; c < columns; ++c)
      g.din[row * columns + c] = r.rstd[row] * (dout[row * columns + c] * gamma[c] - h - normal(c) * hx);
  }
  return g;
}

struct Case : KernelTest {
  struct Data {
    Array in, gamma, beta, out, dout, mean, rstd;
    Data(Dtype t, std::int64_t rows, std::int64_t columns)
        : in(t, {rows, columns}), gamma(t, {columns}), beta(t, {columns}), out(t, {rows, columns}), dout(t, {rows, columns}),
          mean(Dtype::fp32, {rows}), rstd(Dtype::fp32, {rows}) {
      in.randomise(1, 2.0, 0.5);
      gamma.randomise(2, 0.5, 1.0);
      beta.randomise(3);
      dout.randomise(4);
    }
  };
};
using LayerNorm = Case;
INSTANTIATE_TEST_SUITE_P(Dtypes, LayerNorm, all_dtypes(), dtype_test_name);

TEST_P(LayerNorm, Forward) {
  for (std::int64_t rows : {1, 7}) {
    for (std::int64_t columns : {1, 3, 255, 256, 257, 768, 1600}) {
      Data d(dtype, rows, columns);
      layer_norm(*queue, d.out.view(), d.mean.view(), d.rstd.view(), d.in.view(), d.gamma.view(), d.beta.view(), epsilon);
      Reference const want = normalise(d.in.values(), d.gamma.values(), d.beta.values());
      expect_close(d.out, want.out);
      expect_close(d.mean, want.mean);
      expect_close(d.rstd, want.rstd);
    }
  }
}

TEST_P(LayerNorm, LargeMeanDoesNotCancel) {
  Data d(Dtype::fp32, 3, 768);
  d.in.randomise(5, 1.0, 1000.0);
  layer_norm(*queue, d.out.view(), d.mean.view(), d.rstd.view(), d.in.view(), d.gamma.view(), d.beta.view(), epsilon);
  expect_close(d.out, normalise(d.in.values(), d.gamma.values(), d.beta.values()).out, 2e-4);
}

TEST_P(LayerNorm, WithResidualAndDropout) {
  for (float p : {0.0f, 0.2f}) {
    Data d(dtype, 5, 301);
    Array branch(dtype, {5, 301}), sum(dtype, {5, 301});
    branch.randomise(6);
    Dropout const drop{p, 8, 9, 10};
    Reals want = d.in.values();
    Reals const factor = dropout_factors(drop, d.in.numel());
    for (std::size_t i = 0; i < want.size(); ++i) want[i] += branch.get(static_cast<std::int64_t>(i)) * factor[i];
    residual_layer_norm(*queue, sum.view(), d.out.view(), d.mean.view(), d.rstd.view(), d.in.view(), branch.view(), drop,
                        d.gamma.view(), d.beta.view(), epsilon);
    expect_close(sum, want);
    expect_close(d.out, normalise(sum.values(), d.gamma.values(), d.beta.values()).out);
    Array apart(dtype, {5, 301});
    residual_add(*queue, apart.view(), d.in.view(), branch.view(), drop);
    EXPECT_TRUE(apart == sum) << "the fused kernel and residual_add agree";
  }
}

TEST_P(LayerNorm, Backward) {
  for (std::int64_t rows : {1, 16, 37, 2100}) {
    for (std::int64_t columns : {3, 257, 768}) {
      if (rows > 1000 && columns != 257) continue;
      Data d(dtype, rows, columns);
      layer_norm(*queue, d.out.view(), d.mean.view(), d.rstd.view(), d.in.view(), d.gamma.view(), d.beta.view(), epsilon);
      Array din(dtype, {rows, columns}), dgamma(Dtype::fp32, {columns}), dbeta(Dtype::fp32, {columns});
      Array workspace(Dtype::fp32, {layer_norm_backward_workspace(rows, columns)});
      din.randomise(7);
      dgamma.randomise(8);
      dbeta.randomise(9);
      workspace.randomise(10);
      Gradients want = gradients(d.in.values(), d.gamma.values(), d.beta.values(), d.dout.values());
      Gradients more = want;
      for (std::size_t i = 0; i < more.din.size(); ++i) more.din[i] += din.get(static_cast<std::int64_t>(i));
      for (std::size_t c = 0; c < more.dgamma.size(); ++c) {
        more.dgamma[c] += dgamma.get(static_cast<std::int64_t>(c));
        more.dbeta[c] += dbeta.get(static_cast<std::int64_t>(c));
      }
      auto const run = [&](bool accumulate, Gradients const& expected) {
        layer_norm_backward(*queue, din.view(), accumulate, dgamma.view(), dbeta.view(), accumulate, d.dout.view(), d.in.view(),
                            d.mean.view(), d.rstd.view(), d.gamma.view(), workspace.view());
        expect_close(din, expected.din, 3e-6);
        expect_close(dgamma, expected.dgamma, 3e-6);
        expect_close(dbeta, expected.dbeta, 3e-6);
      };
      run(true, more);
      run(false, want);
      Array const first = dgamma, second = dbeta;
      run(false, want);
      EXPECT_TRUE(first == dgamma && second == dbeta) << "two runs give the same bits";
    }
  }
}

TEST(LayerNormReference, AgreesWithFiniteDifferences) {
  Case::Data d(Dtype::fp32, 3, 11);
  Reals const in = d.in.values(), gamma = d.gamma.values(), beta = d.beta.values(), dout = d.dout.values();
  Gradients const g = gradients(in, gamma, beta, dout);
  double const h = 1e-5;
  for (std::size_t i = 0; i < in.size(); ++i) {
    Reals up = in, down = in;
    up[i] += h;
    down[i] -= h;
    EXPECT_NEAR(g.din[i], (loss(up, gamma, beta, dout) - loss(down, gamma, beta, dout)) / (2 * h), 1e-7);
  }
  for (std::size_t c = 0; c < gamma.size(); ++c) {
    Reals up = gamma, down = gamma;
    up[c] += h;
    down[c] -= h;
    EXPECT_NEAR(g.dgamma[c], (loss(in, up, beta, dout) - loss(in, down, beta, dout)) / (2 * h), 1e-7);
    up = down = beta;
    up[c] += h;
    down[c] -= h;
    EXPECT_NEAR(g.dbeta[c], (loss(in, gamma, up, dout) - loss(in, gamma, down, dout)) / (2 * h), 1e-7);
  }
}

}  // namespace
}  // namespace tessera::kernels::test
