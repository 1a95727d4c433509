#include "tessera/kernels/optimizer/lamb.hpp"

#include "launch/partial_sums.hpp"
#include "optimizer/one_bit_lamb_rule.hpp"

namespace tessera::kernels {
namespace {

using namespace detail;

OneBitLambCoefficients coefficients_of(OneBitLambStep const& s) {
  float const epsilon = static_cast<float>(s.epsilon);
  return {1.0f,
          static_cast<float>(s.beta1),
          static_cast<float>(1.0 - s.beta1),
          static_cast<float>(s.beta2),
          static_cast<float>(1.0 - s.beta2),
          s.epsilon_inside_root ? 0.0f : epsilon,
          s.epsilon_inside_root ? epsilon : 0.0f};
}

OneBitLambScalars const& scalars_of(OneBitLambStep const& step, UpdateSegment const& s) {
  return step.parameters[static_cast<std::size_t>(&s - step.segments.data())];
}

void check(OneBitLambStep const& step) {
  TESSERA_VALIDATE(step.parameters.size() == step.segments.size(), InternalError,
                   "1-bit LAMB got values of ", step.parameters.size(), " parameters for ",
                   step.segments.size(), " segments");
}

/// Calls launch(batch, tiles) for as few batches as hold all segments.
template <class Launch>
void for_batches(OneBitLambStep const& step, double* partial, Launch const& launch) {
  OneBitLambBatch batch{coefficients_of(step),
                        step.factor_min,
                        step.factor_max,
                        step.factor_threshold,
                        partial,
                        0,
                        {}};
  std::int64_t tiles = 0;
  auto const flush = [&] {
    if (tiles > 0) launch(batch, tiles);
    batch.runs = 0;
    tiles = 0;
  };
  for (auto const& s : step.segments) {
    if (s.numel == 0) continue;
    if (batch.runs == OneBitLambBatch::max_runs) flush();
    auto const state = [&](std::size_t k) { return static_cast<float const*>(s.states[k]); };
    batch.run[batch.runs++] = {static_cast<float const*>(s.master),
                               state(0),
                               state(1),
                               state(2),
                               scalars_of(step, s),
                               s.numel,
                               tiles,
                               static_cast<float>(s.weight_decay)};
    tiles += OneBitLambBatch::tiles_of(s.numel);
  }
  flush();
}

/// Partial sums of tiles, then a value of each parameter from them.
template <class Sums, class Values>
void reduce_parameters(Queue& q, char const* name, OneBitLambStep const& step) {
  check(step);
  std::int64_t tiles = 0;
  for (auto const& s : step.segments) tiles += OneBitLambBatch::tiles_of(s.numel);
  with_partial_sums(q, name, OneBitLambBatch::sums * tiles,
                    [step](double* partial, auto const& launch) {
                      for_batches(step, partial, [&](OneBitLambBatch const& batch, std::int64_t n) {
                        launch(Sums{batch}, n);
                        launch(Values{batch}, std::int64_t{batch.runs});
                      });
                    });
}

template <class Rule, class RatesOf>
void update_elements(Queue& q, char const* name, OneBitLambStep const& step,
                     RatesOf const& rates_of) {
  check(step);
  launch_segments<Rule>(q, name, step, coefficients_of(step), rates_of);
}

}  // namespace

void lamb_coefficients(Queue& q, LambCoefficients const& step) {
  LambCoefficientBatch batch{step.beta, step.min_coeff, step.max_coeff, step.control, 0, {}};
  auto const flush = [&] {
    parallel_rows(q, "tessera::kernels::lamb_coefficients", batch.count,
                  NextLambCoefficient{batch});
    batch.count = 0;
  };
  for (auto const& p : step.parameters) {
    if (batch.count == LambCoefficientBatch::max_parameters) flush();
    batch.parameter[batch.count++] = p;
  }
  flush();
}

void one_bit_lamb_begin(Queue& q, OneBitLambStep const& step) {
  auto copied = step;
  for (auto& s : copied.segments) {
    s.states[0] = s.states[1];
    s.states[1] = s.states[2];
    s.weights_out = nullptr;
  }
  update_elements<CopyVarianceRule>(q, "tessera::kernels::one_bit_lamb_begin", copied,
                                    [](UpdateSegment const&) { return CopyVarianceRule::Rates{}; });
  reduce_parameters<MomentumSums, MomentumScaling>(q, "tessera::kernels::one_bit_lamb_scaling",
                                                   step);
}

void one_bit_lamb_momentum(Queue& q, OneBitLambStep const& step) {
  update_elements<ScaledMomentumRule>(
      q, "tessera::kernels::one_bit_lamb_momentum", step, [&](UpdateSegment const& s) {
        return ScaledMomentumRule::Rates{scalars_of(step, s).scaling, 0.0f};
      });
}

void one_bit_lamb_moments(Queue& q, OneBitLambStep const& step) {
  update_elements<FreshMomentsRule>(
      q, "tessera::kernels::one_bit_lamb_moments", step, [&](UpdateSegment const& s) {
        return FreshMomentsRule::Rates{scalars_of(step, s).scaling, 0.0f};
      });
}

void one_bit_lamb_factors(Queue& q, OneBitLambStep const& step) {
  reduce_parameters<FactorSums, NextFactor>(q, "tessera::kernels::one_bit_lamb_factors", step);
}

void one_bit_lamb(Queue& q, OneBitLambStep const& step) {
  update_elements<FrozenLambRule>(
      q, "tessera::kernels::one_bit_lamb", step, [&](UpdateSegment const& s) {
        auto const& scalars = scalars_of(step, s);
        return FrozenLambRule::Rates{scalars.coefficient, scalars.factor,
                                     static_cast<float>(s.weight_decay),
                                     static_cast<float>(s.learning_rate)};
      });
}

}  // namespace tessera::kernels
