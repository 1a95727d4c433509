#include "tessera/kernels/cross_entropy.hpp"

#include "reference.hpp"

namespace tessera::kernels::test {
namespace {

TESSERA_KERNEL_SUITE(CrossEntropy);

struct Reference {
  Reals losses, dlogits;
};
Reference reference(Array const& logits, Array const& targets, std::int64_t columns, double scale) {
  std::int64_t const rows = targets.numel();
  Reference r{Reals(static_cast<std::size_t>(rows)), Reals(static_cast<std::size_t>(rows * columns))};
  for (std::int64_t row = 0; row < rows; ++row) {
    auto const target = static_cast<std::int64_t>(targets.get(row));
    if (target < 0) continue;
    double most = -1e300, sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) most = std::max(most, logits.get(row * columns + c));
    for (std::int64_t c = 0; c < columns; ++c) sum += std::exp(logits.get(row * columns + c) - most);
    double const log_sum = most + std::log(sum);
    r.losses[static_cast<std::size_t>(row)] = log_sum - logits.get(row * columns + target);
    for (std::int64_t c = 0; c < columns; ++c)
      r.dlogits[static_cast<std::size_t>(row * columns + c)] =
          scale * (std::exp(logits.get(row * columns + c) - log_sum) - (c == target ? 1.0 : 0.0));
  }
  return r;
}

struct Data {
  Array logits, targets, losses, dlogits;
  Data(Dtype in, Dtype out, std::int64_t rows, std::int64_t columns)
      : logits(in, {rows, columns}), targets(Dtype::int32, {rows}), losses(Dtype::fp32, {rows}), dlogits(out, {rows, columns}) {
    logits.randomise(1, 8.0);
    for (std::int64_t r = 0; r < rows; ++r) targets.set(r, r % 3 == 1 ? -100 : (r * 7919) % columns);
  }
};

TEST_P(CrossEntropy, LossesAndGradients) {
  for (std::int64_t columns : {1, 2, 255, 257, 1000, 5003}) {
    for (Dtype in : {Dtype::fp32, dtype}) {
      Data d(in, dtype, 7, columns);
      float const scale = 0.125f;
      Reference const want = reference(d.logits, d.targets, columns, scale);
      cross_entropy(*queue, d.losses.view(), d.dlogits.view(), d.logits.view(), d.targets.view(), scale);
      expect_close(d.losses, want.losses);
      expect_close(d.dlogits, want.dlogits, 5e-7);
      Array losses(Dtype::fp32, {7});
      cross_entropy(*queue, losses.view(), {}, d.logits.view(), d.targets.view(), scale);
      EXPECT_TRUE(losses == d.losses) << "losses alone";
      if (in != dtype) continue;
      cross_entropy(*queue, losses.view(), d.logits.view(), d.logits.view(), d.targets.view(), scale);
      EXPECT_TRUE(d.logits == d.dlogits) << "gradient in place of the logits";
      EXPECT_TRUE(losses == d.losses);
    }
  }
}

TEST_P(CrossEntropy, LargeLogitsDoNotOverflow) {
  Data d(dtype, dtype, 3, 300);
  d.logits.randomise(2, 30000.0);
  Reference const want = reference(d.logits, d.targets, 300, 1.0);
  cross_entropy(*queue, d.losses.view(), d.dlogits.view(), d.logits.view(), d.targets.view(), 1.0f);
  expect_close(d.losses, want.losses);
  expect_close(d.dlogits, want.dlogits);
}

TEST_P(CrossEntropy, NanIsNotHidden) {
  Data d(dtype, dtype, 1, 300);
  d.logits.set(200, std::nan(""));
  cross_entropy(*queue, d.losses.view(), d.dlogits.view(), d.logits.view(), d.targets.view(), 1.0f);
  EXPECT_TRUE(std::isnan(d.losses.get(0)));
}

TEST(CrossEntropyReference, AgreesWithFiniteDifferences) {
  Data d(Dtype::fp32, Dtype::fp32, 4, 9);
  Reference const want = reference(d.logits, d.targets, 9, 1.0);
  for (std::int64_t i = 0; i < d.logits.numel(); ++i) {
    Array up = d.logits, down = d.logits;
    up.set(i, d.logits.get(i) + 1e-2);
    down.set(i, d.logits.get(i) - 1e-2);
    auto const row = static_cast<std::size_t>(i / 9);
    double const slope = (reference(up, d.targets, 9, 1.0).losses[row] - reference(down, d.targets, 9, 1.0).losses[row]) /
                         (up.get(i) - down.get(i));
    EXPECT_NEAR(want.dlogits[static_cast<std::size_t>(i)], slope, 2e-5);
  }
}

}  // namespace
}  // namespace tessera::kernels::test
