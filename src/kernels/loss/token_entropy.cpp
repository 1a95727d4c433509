#include "tessera/kernels/loss/cross_entropy.hpp"

#include "launch/convert.hpp"
#include "launch/launch.hpp"
#include "loss/cross_entropy_device.hpp"

namespace tessera::kernels {
namespace {

/// One pass for the maximum, one for the sums: with y = x - max, entropy = log sum e^y - sum y e^y
/// / sum e^y, and the mean logit = max + mean(y).
template <class T, class Score>
struct TokenEntropy {
  float *entropy, *means;
  T const* logits;
  std::int32_t const* targets;
  std::int64_t columns, stride;
  Score score;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t row) const {
    std::int64_t const counted = targets[row] < 0 ? 0 : columns;
    T const* const x = logits + row * stride;
    float running_max = -std::numeric_limits<float>::infinity();
    detail::for_chunks(team, counted, [&](std::int64_t c, int n) {
#pragma omp simd reduction(max : running_max)
      for (int i = 0; i < n; ++i) {
        float const logit = score(detail::load(x[c + i]));
        running_max = logit > running_max ? logit : running_max;
      }
    });
    float const row_max = team.max(running_max);
    float sum = 0.0f, weighted = 0.0f, shifted = 0.0f;
    detail::for_chunks(team, counted, [&](std::int64_t c, int n) {
      float part = 0.0f, weighted_part = 0.0f, shifted_part = 0.0f;
#pragma omp simd reduction(+ : part, weighted_part, shifted_part)
      for (int i = 0; i < n; ++i) {
        float const y = score(detail::load(x[c + i])) - row_max, e = detail::fast_exp(y);
        part += e;
        weighted_part += e * y;
        shifted_part += y;
      }
      sum += part;
      weighted += weighted_part;
      shifted += shifted_part;
    });
    float const total = team.sum(sum), total_weighted = team.sum(weighted),
                total_shifted = team.sum(shifted);
    if (team.rank() != 0) return;
    entropy[row] = counted == 0 ? 0.0f : Kokkos::log(total) - total_weighted / total;
    means[row] = counted == 0 ? 0.0f : row_max + total_shifted / static_cast<float>(columns);
  }
};

}  // namespace

void token_entropy(Queue& q, CrossEntropyOptions const& options, TensorView entropy,
                   TensorView means, ConstTensorView logits, ConstTensorView targets) {
  std::int64_t const rows = entropy.numel();
  if (rows == 0) return;
  TESSERA_EXPECT(logits.numel() % rows == 0 && targets.numel() == rows && means.numel() == rows);
  std::int64_t const stride = logits.numel() / rows;
  TESSERA_EXPECT(options.vocabulary <= stride);
  detail::with_type(logits.dtype(), "token_entropy", [&](auto of) {
    using T = typename decltype(of)::type;
    auto const call = [&](auto score) {
      detail::parallel_rows(
          q, "tessera::kernels::token_entropy", rows,
          TokenEntropy<T, decltype(score)>{
              entropy.as<float>(), means.as<float>(), logits.as<T>(), targets.as<std::int32_t>(),
              options.vocabulary > 0 ? options.vocabulary : stride, stride, score});
    };
    if (options.soft_cap > 0.0f)
      call(detail::CappedLogit{detail::SoftCap(options.soft_cap)});
    else
      call(detail::PlainLogit());
  });
}

}  // namespace tessera::kernels
