#include "tessera/kernels/optimizer/lamb.hpp"

#include "launch/partial_sums.hpp"
#include "optimizer/lamb_rule.hpp"

namespace tessera::kernels {
namespace {

using namespace detail;

LambRule::Coefficients coefficients_of(LambStep const& s) {
  float const epsilon = static_cast<float>(s.epsilon);
  return {1.0f,
          static_cast<float>(1.0 - s.beta1),
          static_cast<float>(s.beta2),
          static_cast<float>(1.0 - s.beta2),
          s.epsilon_inside_root ? 0.0f : epsilon,
          s.epsilon_inside_root ? epsilon : 0.0f,
          s.min_coeff,
          s.max_coeff};
}

void check(LambStep const& step) {
  TESSERA_VALIDATE(step.sums.size() == step.segments.size(), InternalError, "LAMB got ",
                   step.sums.size(), " sums for ", step.segments.size(), " segments");
}

/// Calls launch(batch, tiles) for as few batches as hold all segments.
template <class Launch>
void for_batches(LambStep const& step, double* partial, Launch const& launch) {
  LambNormBatch batch{coefficients_of(step), step.control, partial, 0, {}};
  std::int64_t tiles = 0;
  auto const flush = [&] {
    if (tiles > 0) launch(batch, tiles);
    batch.runs = 0;
    tiles = 0;
  };
  for (std::size_t i = 0; i < step.segments.size(); ++i) {
    auto const& s = step.segments[i];
    if (s.numel == 0) continue;
    if (batch.runs == LambNormBatch::max_runs) flush();
    batch.run[batch.runs++] = {static_cast<float*>(s.master),
                               static_cast<float*>(s.states[0]),
                               static_cast<float*>(s.states[1]),
                               s.gradient,
                               step.sums[i],
                               s.numel,
                               tiles,
                               static_cast<float>(s.weight_decay)};
    tiles += LambNormBatch::tiles_of(s.numel);
  }
  flush();
}

}  // namespace

void lamb_norms(Queue& q, LambStep const& step) {
  check(step);
  char const* const name = "tessera::kernels::lamb_norms";
  check_segments<LambRule>(step, name);
  std::int64_t tiles = 0;
  for (auto const& s : step.segments) tiles += LambNormBatch::tiles_of(s.numel);
  with_partial_sums(q, name, lamb_sums * tiles, [step, name](double* partial, auto const& launch) {
    with_type(step.gradient_dtype, name, [&](auto tag) {
      using G = typename decltype(tag)::type;
      for_batches(step, partial, [&](LambNormBatch const& batch, std::int64_t count) {
        launch(LambTileNorms<G>{batch, prefetch_distance(Prefetched::updates)}, count);
        launch(LambTotals{batch}, std::int64_t{batch.runs});
      });
    });
  });
}

void lamb(Queue& q, LambStep const& step) {
  check(step);
  launch_segments<LambRule>(
      q, "tessera::kernels::lamb", step, coefficients_of(step), [&](UpdateSegment const& s) {
        auto const index = static_cast<std::size_t>(&s - step.segments.data());
        return LambRule::Rates{static_cast<float>(s.weight_decay),
                               static_cast<float>(s.learning_rate * step.rate_factor),
                               step.sums[index]};
      });
}

}  // namespace tessera::kernels
