#include <cmath>

#include "reference.hpp"
#include "tessera/kernels/loss/cross_entropy.hpp"

namespace tessera::kernels::test {
namespace {

TESSERA_KERNEL_SUITE(TokenEntropy);

double mean_of(Array const& logits, std::int64_t row, std::int64_t columns, double cap) {
  double sum = 0.0;
  for (std::int64_t c = 0; c < columns; ++c) {
    double const x = logits.get(row * logits.view().dim(1) + c);
    sum += cap > 0.0 ? cap * std::tanh(x / cap) : x;
  }
  return sum / static_cast<double>(columns);
}

double entropy_of(Array const& logits, std::int64_t row, std::int64_t columns, double cap) {
  double sum = 0.0, weighted = 0.0;
  for (std::int64_t c = 0; c < columns; ++c) {
    double const x = logits.get(row * logits.view().dim(1) + c),
                 y = cap > 0.0 ? cap * std::tanh(x / cap) : x;
    sum += std::exp(y);
    weighted += y * std::exp(y);
  }
  return std::log(sum) - weighted / sum;
}

TEST_P(TokenEntropy, EqualsItsDefinition) {
  for (double const cap : {0.0, 3.0}) {
    std::int64_t const rows = 6, stride = 40, columns = 37;
    Array logits(dtype, {rows, stride}), targets(Dtype::int32, {rows}),
        entropy(Dtype::fp32, {rows}), means(Dtype::fp32, {rows});
    logits.randomize(3, 6.0);
    for (std::int64_t r = 0; r < rows; ++r) targets.set(r, r == 2 ? -1.0 : 1.0);
    token_entropy(*queue, {.vocabulary = columns, .soft_cap = static_cast<float>(cap)},
                  entropy.view(), means.view(), logits.view(), targets.view());
    queue->record().wait("entropy", std::chrono::minutes(1));
    for (std::int64_t r = 0; r < rows; ++r) {
      EXPECT_NEAR(entropy.get(r), r == 2 ? 0.0 : entropy_of(logits, r, columns, cap), 2e-5) << r;
      EXPECT_NEAR(means.get(r), r == 2 ? 0.0 : mean_of(logits, r, columns, cap), 2e-5) << r;
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::test
