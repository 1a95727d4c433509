#include "optimizers/segments.hpp"

#include <cmath>
#include <cstddef>
#include <type_traits>

namespace tessera::optim::detail {

Segments parameter_segments(Segments const& segments, std::vector<StateSpec> const& states) {
  auto const advanced = [](auto* base, Dtype dtype, std::int64_t elements) -> decltype(base) {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(base)>>,
                                    std::byte const, std::byte>;
    return base ? static_cast<Byte*>(base) + elements * static_cast<std::int64_t>(size_of(dtype))
                : nullptr;
  };
  Segments out{{}, segments.gradient_dtype, segments.weights_dtype, segments.master_dtype};
  for (auto const& s : segments.list)
    for (auto const& run : s.parameters) {
      std::int64_t const at = run.segment_offset;
      Segment part = s;
      part.master = advanced(s.master, segments.master_dtype, at);
      for (std::size_t k = 0; k < part.states.size(); ++k)
        part.states[k] =
            advanced(part.states[k], k < states.size() ? states[k].dtype : Dtype::fp32, at);
      part.gradient = advanced(s.gradient, segments.gradient_dtype, at);
      part.weights_out = advanced(s.weights_out, segments.weights_dtype, at);
      part.numel = run.numel;
      part.parameters = {run};
      part.parameters[0].segment_offset = 0;
      auto const index = static_cast<std::size_t>(&run - s.parameters.data());
      part.parameter_states.clear();
      if (index < s.parameter_states.size()) part.parameter_states = {s.parameter_states[index]};
      out.list.push_back(std::move(part));
    }
  return out;
}

std::vector<HyperparameterRule> adam_rules(char const* eps_meaning) {
  using Range = HyperparameterRule::Range;
  return {{"beta1", 0.9, Range::unit, "decay of the mean of the gradients"},
          {"beta2", 0.999, Range::unit, "decay of the mean of their squares"},
          {"eps", 1e-8, Range::positive, eps_meaning},
          {"weight_decay", 0.0, Range::not_negative, "weight decay"}};
}

double bias_correction(double beta, std::int64_t t) {
  return 1.0 - std::pow(beta, static_cast<double>(t));
}

}  // namespace tessera::optim::detail
