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
  return {static_cast<float>(s.adam_l2 ? 1.0 : 1.0 - lr * decay),
          static_cast<float>(s.adam_l2 ? decay : 0.0), static_cast<float>(lr / s.bias_correction1)};
}

void check(AdamWStep const& s) {
  TESSERA_VALIDATE(s.bias_correction1 > 0.0 && s.bias_correction2 > 0.0, InternalError,
                   "AdamW got bias corrections ", s.bias_correction1, " and ", s.bias_correction2,
                   "; 1 - beta^t is positive from step t = 1 on");
  for (auto const& segment : s.segments)
    TESSERA_VALIDATE(
        segment.numel == 0 || (segment.numel > 0 && segment.master && segment.exp_avg &&
                               segment.exp_avg_sq && segment.gradient),
        InternalError, "AdamW got a segment of ", segment.numel,
        " elements without its weights, moments or gradient");
}

/// Hands the segments that write 16-bit weights (W) or those that do not (void) to @p launch(batch,
/// tiles), in as few batches as hold them. @p place(run) sets what the side needs to know of a run
/// and gives its number of tiles.
template <class G, class W, class Place, class Launch>
void for_batches(AdamWStep const& s, Place const& place, Launch const& launch) {
  AdamWBatch<G, W> batch{coefficients_of(s), s.control, 0, {}};
  std::int64_t tiles = 0;
  auto const flush = [&] {
    if (tiles > 0) launch(batch, tiles);
    batch.runs = 0;
    tiles = 0;
  };
  for (auto const& segment : s.segments) {
    if (segment.numel == 0 || (segment.weights_out == nullptr) != std::is_void_v<W>) continue;
    if (batch.runs == batch.max_runs) flush();
    AdamWRun& run = batch.run[batch.runs++];
    run = {segment.master,
           segment.exp_avg,
           segment.exp_avg_sq,
           segment.gradient,
           segment.weights_out,
           segment.numel,
           tiles,
           rates_of(s, segment),
           0};
    tiles += place(run);
  }
  flush();
}

template <class G, class W>
void update(Queue& q, AdamWStep const& s) {
  char const* const name = "tessera::kernels::adamw";
  if (q.kind() == QueueKind::stream) {
    using Packs = AdamWPacks<G, W>;
    auto const place = [](AdamWRun& run) {
      run.shift = Packs::shift_of(run);
      return Packs::tiles_of(run);
    };
    for_batches<G, W>(s, place, [&](auto const& batch, std::int64_t tiles) {
      parallel_for(q, name, tiles * warp_size, Packs{batch});
    });
  } else {
    auto const place = [](AdamWRun const& run) {
      return (run.numel + host_range - 1) / host_range;
    };
    for_batches<G, W>(s, place, [&](auto const& batch, std::int64_t tiles) {
      launch_on_host(q, name, tiles, AdamWTiles<G, W>{batch, host_range});
    });
  }
}

}  // namespace

void adamw(Queue& q, AdamWStep const& step) {
  check(step);
  with_type(step.gradient_dtype, "adamw", [&](auto g) {
    using G = typename decltype(g)::type;
    update<G, void>(q, step);
    with_type(step.weights_dtype, "adamw",
              [&](auto w) { update<G, typename decltype(w)::type>(q, step); });
  });
}

}  // namespace tessera::kernels
