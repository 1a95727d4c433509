#include "tessera/kernels/elementwise/elementwise.hpp"

#include "reference.hpp"

namespace tessera::kernels::test {
namespace {

TESSERA_KERNEL_SUITE(Elementwise);

constexpr std::int64_t sizes[] = {1, 5, 63, 4096, 4097, 20011};

double gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  double const h = 1e-5;
  return (gelu(x + h) - gelu(x - h)) / (2.0 * h);
}

TEST_P(Elementwise, FillScaleAdd) {
  for (std::int64_t n : sizes) {
    Array out(dtype, {n}), in(Dtype::fp32, {n});
    in.randomize(3);
    fill(*queue, out.view(), 1.5f);
    scale(*queue, out.view(), -3.0f);
    add(*queue, out.view(), in.view());
    Reals want = in.values();
    for (double& w : want) w -= 4.5;
    expect_close(out, want);
  }
}

TEST_P(Elementwise, AddToFp32) {
  Array sum(Dtype::fp32, {5000}), in(dtype, {5000});
  sum.randomize(1);
  in.randomize(2);
  Reals want = sum.values();
  for (std::size_t i = 0; i < want.size(); ++i) want[i] += in.get(static_cast<std::int64_t>(i));
  add(*queue, sum.view(), in.view());
  expect_close(sum, want, 1e-7);
}

TEST_P(Elementwise, CastRoundsToNearest) {
  for (std::int64_t n : sizes) {
    for (Dtype from : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
      Array in(from, {n}), out(dtype, {n}), want(dtype, {n});
      in.randomize(4, 100.0);
      for (std::int64_t i = 0; i < n; ++i) want.set(i, in.get(i));
      cast(*queue, out.view(), in.view());
      EXPECT_TRUE(out == want);
    }
  }
}

TEST_P(Elementwise, DropoutInPlaceAndApart) {
  for (std::int64_t n : sizes) {
    Dropout const drop{0.25f, 7, 9, 13};
    Array in(dtype, {n}), out(dtype, {n});
    in.randomize(5);
    Reals want = in.values();
    Reals const factor = dropout_factors(drop, n);
    for (std::size_t i = 0; i < want.size(); ++i) want[i] *= factor[i];
    dropout(*queue, out.view(), in.view(), drop);
    expect_close(out, want, 2e-7);
    dropout(*queue, in.view(), in.view(), drop);
    EXPECT_TRUE(in == out);
  }
}

TEST_P(Elementwise, DropoutOfRowsIsThatOfTheWhole) {
  Array whole(dtype, {12, 331}), parts(dtype, {12, 331}), in(dtype, {12, 331});
  in.randomize(6);
  Dropout drop{0.5f, 3, 4, 77};
  dropout(*queue, whole.view(), in.view(), drop);
  for (std::int64_t row : {0, 1, 5}) {
    std::int64_t const count = row == 0 ? 1 : row == 1 ? 4 : 7;
    drop.first_element = 77 + static_cast<std::uint64_t>(row * 331);
    dropout(*queue, parts.view().rows(row, count),
            static_cast<ConstTensorView>(in.view()).rows(row, count), drop);
  }
  EXPECT_TRUE(whole == parts);
}

TEST_P(Elementwise, NoDropoutCopies) {
  Array in(dtype, {1000}), out(dtype, {1000});
  in.randomize(5);
  dropout(*queue, out.view(), in.view(), {});
  EXPECT_TRUE(in == out);
}

TEST_P(Elementwise, ResidualAdd) {
  for (float p : {0.0f, 0.1f}) {
    for (std::int64_t n : sizes) {
      Dropout const drop{p, 1, 2, 3};
      Array a(dtype, {n}), b(dtype, {n}), out(dtype, {n});
      a.randomize(6);
      b.randomize(7);
      Reals want = a.values();
      Reals const factor = dropout_factors(drop, n);
      for (std::size_t i = 0; i < want.size(); ++i)
        want[i] += b.get(static_cast<std::int64_t>(i)) * factor[i];
      residual_add(*queue, out.view(), a.view(), b.view(), drop);
      expect_close(out, want);
      Array c = b;
      residual_add(*queue, c.view(), a.view(), c.view(), drop);
      EXPECT_TRUE(c == out) << "out over branch";
      residual_add(*queue, a.view(), a.view(), b.view(), drop);
      EXPECT_TRUE(a == out) << "out over residual";
    }
  }
}

TEST_P(Elementwise, GeluAndItsGradient) {
  for (std::int64_t n : sizes) {
    Array in(dtype, {n}), out(dtype, {n}), dout(dtype, {n}), din(dtype, {n});
    in.randomize(8, 6.0);
    dout.randomize(9);
    Reals want(static_cast<std::size_t>(n)), slope(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) {
      want[static_cast<std::size_t>(i)] = gelu(in.get(i));
      slope[static_cast<std::size_t>(i)] = dout.get(i) * gelu_slope(in.get(i));
    }
    gelu_new(*queue, out.view(), in.view());
    expect_close(out, want);
    gelu_new_backward(*queue, din.view(), dout.view(), in.view());
    expect_close(din, slope, 2e-6);
    gelu_new_backward(*queue, dout.view(), dout.view(), in.view());
    EXPECT_TRUE(dout == din);
  }
}

TEST_P(Elementwise, GeluFarOut) {
  Array in(Dtype::fp32, {6}), out(Dtype::fp32, {6}), din(Dtype::fp32, {6}), one(Dtype::fp32, {6});
  double const x[] = {-1e6, -50.0, -12.0, 12.0, 50.0, 1e6};
  for (std::int64_t i = 0; i < 6; ++i) in.set(i, x[i]);
  fill(*queue, one.view(), 1.0f);
  gelu_new(*queue, out.view(), in.view());
  gelu_new_backward(*queue, din.view(), one.view(), in.view());
  for (std::int64_t i = 0; i < 6; ++i) {
    EXPECT_FLOAT_EQ(static_cast<float>(out.get(i)), static_cast<float>(std::max(x[i], 0.0)));
    EXPECT_FLOAT_EQ(static_cast<float>(din.get(i)), x[i] > 0 ? 1.0f : 0.0f);
  }
}

}  // namespace
}  // namespace tessera::kernels::test
