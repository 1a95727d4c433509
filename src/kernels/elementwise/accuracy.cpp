#include "tessera/kernels/elementwise/elementwise.hpp"

#include "launch/convert.hpp"
#include "launch/launch.hpp"

namespace tessera::kernels {
namespace {

template <class T>
struct Top1Hits {
  float* hits;
  T const* logits;
  std::int32_t const* targets;
  std::int64_t columns, stride;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t row) const {
    std::int64_t const target = targets[row];
    T const* const x = logits + row * stride;
    float const right = target < 0 ? 0.0f : detail::load(x[target]);
    float beaten = target < 0 ? 1.0f : 0.0f;
    for (std::int64_t c = team.rank(); c < columns; c += team.size()) {
      float const other = detail::load(x[c]);
      if (!(other < right || (other == right && c >= target))) beaten = 1.0f;
    }
    float const any = team.max(beaten);
    if (team.rank() == 0) hits[row] = 1.0f - any;
  }
};

}  // namespace

void top1_hits(Queue& q, TensorView hits, ConstTensorView logits, ConstTensorView targets,
               std::int64_t vocabulary) {
  std::int64_t const rows = hits.numel();
  if (rows == 0) return;
  TESSERA_EXPECT(logits.numel() % rows == 0 && targets.numel() == rows &&
                 vocabulary <= logits.numel() / rows);
  detail::with_type(logits.dtype(), "top1_hits", [&](auto of) {
    using T = typename decltype(of)::type;
    detail::parallel_rows(q, "tessera::kernels::top1_hits", rows,
                          Top1Hits<T>{hits.as<float>(), logits.as<T>(), targets.as<std::int32_t>(),
                                      vocabulary, logits.numel() / rows});
  });
}

}  // namespace tessera::kernels
