#include "tessera/kernels/adamw.hpp"

#include <cmath>

#include "detail/adamw_rule.hpp"
#include "detail/launch.hpp"

namespace tessera::kernels {
namespace {

using namespace detail;

AdamWCoefficients coefficients_of(AdamWStep const& s) {
  return {static_cast<float>(s.gradient_factor),
          static_cast<float>(s.beta1),
          static_cast<float>(1.0 - s.beta1),
          static_cast<float>(s.beta2),
          static_cast<float>(1.0 - s.beta2),
          static_cast<float>(1.0 / std::sqrt(s.bias_correction2)),
          static_cast<float>(s.epsilon)};
}

AdamWRates rates_of(AdamWStep const& s, AdamWSegment const& segment) {
  double const lr = segment.learning_rate, decay = segment.weight_decay;
  return {static_cast<float>(s.adam_l2 ? 1.0 : 1.0 - lr * decay), static_cast<float>(s.adam_l2 ? decay : 0.0),
          static_cast<float>(lr / s.bias_correction1)};
}

void check(AdamWStep const& s) {
  TESSERA_VALIDATE(s.bias_correction1 > 0.0 && s.bias_correction2 > 0.0, InternalError, "AdamW got bias corrections ",
                   s.bias_correction1, " and ", s.bias_correction2, "; 1 - beta^t is positive from step t = 1 on");
  for (auto const& segment : s.segments)
    TESSERA_VALIDATE(segment.numel == 0 || (segment.numel > 0 && segment.master && segment.exp_avg && segment.exp_avg_sq && segment.gradient),
                     InternalError, "AdamW got a segment of ", segment.numel, " elements without its weights, moments or gradient");
}

/// Launches the segments that write 16-bit weights (W) or those that do not (void), in as few kernels as hold them.
template <class G, class W>
void launch_tiles(Queue& q, AdamWStep const& s) {
  using Tiles = AdamWTiles<G, W>;
  Tiles batch{coefficients_of(s), s.control, memory::on_cuda(q) ? 1 : host_range, 0, {}};
  std::int64_t tiles = 0;
  auto const flush = [&] {
    parallel_for(q, "tessera::kernels::adamw", tiles, batch);
    batch.runs = 0;
    tiles = 0;
  };
  for (auto const& segment : s.segments) {
    if (segment.numel == 0 || (segment.weights_out == nullptr) != std::is_void_v<W>) continue;
    if (batch.runs == Tiles::max_runs) flush();
    batch.run[batch.runs++] = {segment.master,      segment.exp_avg, segment.exp_avg_sq, segment.gradient,
                               segment.weights_out, segment.numel,   tiles,              rates_of(s, segment)};
    tiles += (segment.numel + batch.tile - 1) / batch.tile;
  }
  flush();
}

}  // namespace

void adamw(Queue& q, AdamWStep const& step) {
  check(step);
  with_type(step.gradient_dtype, "adamw", [&](auto g) {
    using G = typename decltype(g)::type;
    launch_tiles<G, void>(q, step);
    with_type(step.weights_dtype, "adamw", [&](auto w) { launch_tiles<G, typename decltype(w)::type>(q, step); });
  });
}

}  // namespace tessera::kernels
