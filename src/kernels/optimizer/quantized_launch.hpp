#pragma once
/// The launch of an element-wise rule with states in 8 bits on segments.

#include "optimizer/quantized_update.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::kernels::detail {

template <class Rule>
void check_segments(std::vector<QuantizedSegment> const& segments, char const* name) {
  for (auto const& s : segments) {
    bool complete = s.numel > 0 && s.master && s.gradient;
    for (std::size_t k = 0; k < Rule::states; ++k)
      complete = complete && s.quantized[k].codes && s.quantized[k].absmax;
    TESSERA_VALIDATE(s.numel == 0 || complete, InternalError, name, " got a segment of ", s.numel,
                     " elements without its weights, codes or gradient");
  }
}

/// Enqueues the update of all segments. @p step has the dtypes and the control; its segments are
/// not used. @p rates_of(segment) gives Rule::Rates.
template <class Rule, DynamicMap... maps, class RatesOf>
void launch_quantized(Queue& q, char const* name, ElementwiseUpdate const& step,
                      std::vector<QuantizedSegment> const& segments,
                      typename Rule::Coefficients coefficients, RatesOf const& rates_of) {
  using Chunks = QuantizedChunks<Rule, maps...>;
  check_segments<Rule>(segments, name);
  coefficients.gradient_factor = static_cast<float>(step.gradient_factor);
  bool const on_device = kokkos_has_cuda && memory::on_cuda(q);
  Chunks batch{coefficients,
               step.control,
               {table_for(q, maps)...},
               step.gradient_dtype,
               step.weights_dtype,
               on_device ? Chunks::warps : host_range / quantization_chunk,
               0,
               {}};
  std::int64_t items = 0;
  auto const flush = [&] {
    if (on_device) {
      if constexpr (kokkos_has_cuda) parallel_teams<32 * Chunks::warps>(q, name, items, batch);
    } else if (items > 0) {
      launch_on_host(q, name, items, batch);
    }
    batch.runs = 0;
    items = 0;
  };
  for (auto const& s : segments) {
    if (s.numel == 0) continue;
    if (batch.runs == Chunks::max_runs) flush();
    auto& run = batch.run[batch.runs++];
    run = {
        static_cast<float*>(s.master), {}, s.gradient, s.weights_out, s.numel, rates_of(s), items};
    for (std::size_t k = 0; k < Rule::states; ++k) run.states[k] = s.quantized[k];
    std::int64_t const elements = batch.chunks_of_item * quantization_chunk;
    items += ceil_divide(s.numel, elements);
  }
  flush();
}

}  // namespace tessera::kernels::detail
