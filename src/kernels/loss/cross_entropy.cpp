#include "tessera/kernels/loss/cross_entropy.hpp"

#include "launch/convert.hpp"
#include "launch/fast_math.hpp"
#include "launch/launch.hpp"
#include "loss/cross_entropy_device.hpp"

namespace tessera::kernels {
namespace {

using detail::fast_exp;
using detail::for_chunks;
using detail::load;
using detail::store;
using detail::with_type;

/// Host traversal (device: detail/cross_entropy_device.hpp). One pass for maximum and sum of
/// exponentials together (online softmax), one for the gradient, while the row is in the L2 cache.
/// Score turns an element into its logit.
template <class Out, class In, class Score>
struct CrossEntropy {
  float* losses;
  Out* dlogits;  ///< may be null
  In const* logits;
  std::int32_t const* targets;
  std::int64_t columns, stride;
  float gradient_scale;
  detail::Smoothing smoothing;
  Score score;
  bool dynamic = false;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t row) const {
    std::int64_t const target = targets[row];
    Out* const gradient = dlogits == nullptr ? nullptr : dlogits + row * stride;
    if (target < 0) return ignore(team, row, gradient);
    In const* const x = logits + row * stride;
    float const x_target =
        score(load(x[target]));  // before dlogits, which may be the same memory, is written
    float running_max = -std::numeric_limits<float>::infinity(), sum = 0.0f;
    for_chunks(team, columns,
               [&](std::int64_t c, int n) { add_chunk(x + c, n, running_max, sum); });
    float const row_max = team.max(running_max);
    // a thread without elements has sum 0 and no maximum
    float const total = team.sum(sum > 0.0f ? sum * fast_exp(running_max - row_max) : sum);
    float const log_sum = row_max + Kokkos::log(total);
    float const weight = dynamic ? Kokkos::exp(x_target - log_sum) : 1.0f;
    float const inverse = 1.0f / total, factor = gradient_scale * weight,
                uniform = smoothing.uniform;
    float const all_logits = uniform > 0.0f ? sum_of_logits(team, x) : 0.0f;
    if (gradient != nullptr) {
      // (softmax - onehot) * scale without a comparison per element: the target is corrected
      // afterwards, by the thread that wrote it
      for_chunks(team, columns, [&](std::int64_t c, int n) {
#pragma omp simd
        for (int i = 0; i < n; ++i) {
          float const logit = score(load(x[c + i]));
          store(gradient[c + i],
                (fast_exp(logit - row_max) * inverse - uniform) * (factor * score.slope_at(logit)));
        }
        if (c <= target && target < c + n)
          store(gradient[target],
                (fast_exp(x_target - row_max) * inverse - uniform - smoothing.confidence) *
                    (factor * score.slope_at(x_target)));
      });
    }
    if (team.rank() == 0)
      losses[row] = weight * (log_sum - smoothing.confidence * x_target - uniform * all_logits);
  }

  /// Before dlogits, which may be the same memory, is written.
  template <class Team>
  KOKKOS_FUNCTION float sum_of_logits(Team const& team, In const* x) const {
    float sum = 0.0f;
    for_chunks(team, columns, [&](std::int64_t c, int n) {
      float part = 0.0f;
#pragma omp simd reduction(+ : part)
      for (int i = 0; i < n; ++i) part += score(load(x[c + i]));
      sum += part;
    });
    return team.sum(sum);
  }

  KOKKOS_FUNCTION void add_chunk(In const* x, int n, float& running_max, float& sum) const {
    float new_max = running_max;
#pragma omp simd reduction(max : new_max)
    for (int i = 0; i < n; ++i) new_max = score(load(x[i])) > new_max ? score(load(x[i])) : new_max;
    float part = 0.0f;
#pragma omp simd reduction(+ : part)
    for (int i = 0; i < n; ++i) part += fast_exp(score(load(x[i])) - new_max);
    sum = sum * fast_exp(running_max - new_max) + part;
    running_max = new_max;
  }

  template <class Team>
  KOKKOS_FUNCTION void ignore(Team const& team, std::int64_t row, Out* gradient) const {
    if (gradient != nullptr) {
      for_chunks(team, columns, [&](std::int64_t c, int n) {
        for (int i = 0; i < n; ++i) store(gradient[c + i], 0.0f);
      });
    }
    if (team.rank() == 0) losses[row] = 0.0f;
  }
};

template <bool aligned, class Out, class In, class Score>
void run_in_teams(Queue& q, char const* name, CrossEntropy<Out, In, Score> const& r,
                  std::int64_t rows) {
  detail::with_team_size<detail::cross_entropy_threads>(q, [&](auto threads) {
    constexpr int team = decltype(threads)::value;
    detail::TeamCrossEntropy<Out, In, Score, aligned, team> const rule{
        r.losses, r.dlogits,        r.logits,    r.targets, r.columns,
        r.stride, r.gradient_scale, r.smoothing, r.score,   r.dynamic};
    detail::parallel_teams<team>(q, name, rows, rule);
  });
}

template <class Out, class In, class Score>
void run(Queue& q, CrossEntropy<Out, In, Score> const& rule, std::int64_t rows) {
  char const* const name = "tessera::kernels::cross_entropy";
  if (!detail::on_device(q))
    return detail::launch_on_host(q, name, rows,
                                  detail::CallWithRow<CrossEntropy<Out, In, Score>>{rule});
  if (detail::in_packs<detail::pack_of<bfloat16>>(rule.stride, rule.logits, rule.dlogits))
    run_in_teams<true>(q, name, rule, rows);
  else
    run_in_teams<false>(q, name, rule, rows);
}

}  // namespace

void cross_entropy(Queue& q, CrossEntropyOptions const& options, TensorView losses,
                   TensorView dlogits, ConstTensorView logits, ConstTensorView targets) {
  std::int64_t const rows = losses.numel();
  if (rows == 0) return;
  TESSERA_EXPECT(logits.numel() % rows == 0 && targets.numel() == rows);
  TESSERA_EXPECT(dlogits.empty() || dlogits.numel() == logits.numel());
  std::int64_t const stride = logits.numel() / rows;
  TESSERA_EXPECT(options.vocabulary <= stride);
  Dtype const out = dlogits.empty() ? logits.dtype() : dlogits.dtype();
  with_type(out, "cross_entropy", [&](auto to) {
    with_type(logits.dtype(), "cross_entropy", [&](auto from) {
      using Out = typename decltype(to)::type;
      using In = typename decltype(from)::type;
      auto const call = [&](auto score) {
        std::int64_t const columns = options.vocabulary > 0 ? options.vocabulary : stride;
        CrossEntropy<Out, In, decltype(score)> const rule{
            losses.as<float>(),
            dlogits.empty() ? nullptr : dlogits.as<Out>(),
            logits.as<In>(),
            targets.as<std::int32_t>(),
            columns,
            stride,
            options.gradient_scale,
            {1.0f - options.label_smoothing, options.label_smoothing / static_cast<float>(columns)},
            score,
            options.dynamic};
        run(q, rule, rows);
      };
      if (options.soft_cap > 0.0f)
        call(detail::CappedLogit{detail::SoftCap(options.soft_cap)});
      else
        call(detail::PlainLogit());
    });
  });
}

}  // namespace tessera::kernels
