#include "detail/elementwise.hpp"

#include <algorithm>
#include <cmath>

namespace tessera::optim::detail {

void set_segments(kernels::ElementwiseUpdate& out, OptimizerSpec const& spec,
                  Segments const& segments, StepControl const& control) {
  out.gradient_dtype = segments.gradient_dtype;
  out.weights_dtype = segments.weights_dtype;
  out.control = control.gradients;
  out.segments.reserve(segments.list.size());
  for (auto const& s : segments.list) {
    kernels::UpdateSegment segment;
    segment.master = s.master;
    std::transform(s.states.begin(), s.states.end(), segment.states.begin(),
                   [](void* state) { return static_cast<float*>(state); });
    segment.gradient = s.gradient;
    segment.weights_out = s.weights_out;
    segment.numel = s.numel;
    segment.learning_rate = control.learning_rate;
    segment.weight_decay = spec.value("weight_decay", s.group);
    out.segments.push_back(segment);
  }
}

double bias_correction(double beta, std::int64_t t) {
  return 1.0 - std::pow(beta, static_cast<double>(t));
}

}  // namespace tessera::optim::detail
