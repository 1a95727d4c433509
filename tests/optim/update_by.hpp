#pragma once
/// An element-wise optimizer as a kernel of update_case.hpp.

#include "tessera/optim/optimizer.hpp"
#include "update_case.hpp"

namespace tessera::optim::test {

/// Step @p t of the optimizer of @p spec. All segments have one learning rate.
inline void update_by(OptimizerSpec spec, std::int64_t t, memory::Queue& q,
                      kernels::test::ElementwiseUpdate const& update) {
  Segments segments{{}, update.gradient_dtype, update.weights_dtype};
  spec.groups.clear();
  for (auto const& s : update.segments) {
    std::vector<void*> const states(s.states.begin(),
                                    s.states.begin() + static_cast<int>(spec.states.size()));
    segments.list.push_back(
        {s.master, states, s.gradient, s.weights_out, s.numel, spec.groups.size()});
    spec.groups.push_back({"", ParameterGroup::Members::all, {{"weight_decay", s.weight_decay}}});
    EXPECT_EQ(s.learning_rate, update.segments[0].learning_rate);
  }
  make_optimizer(spec)->update(q, segments,
                               {t, update.segments.at(0).learning_rate, update.control});
}

/// Each segment as a matrix of one row, with its states at @p places of the optimizer's
/// list of @p count. Segments without decay are in the second group.
inline Segments parameters_of(kernels::test::ElementwiseUpdate const& update,
                              std::vector<std::size_t> const& places, std::size_t count,
                              std::vector<void*> const& parameter_states = {}) {
  Segments out{{}, update.gradient_dtype, update.weights_dtype};
  for (auto const& s : update.segments) {
    std::vector<void*> states(count);
    for (std::size_t k = 0; k < places.size(); ++k) states[places[k]] = s.states[k];
    out.list.push_back({s.master,
                        states,
                        s.gradient,
                        s.weights_out,
                        s.numel,
                        s.weight_decay == 0.0 ? 1u : 0u,
                        {{{1, s.numel}, s.numel, 0, 0, s.numel}},
                        {parameter_states}});
  }
  return out;
}

/// @param t of the step; decays of states hide differences in late ones
inline void expect_optimizer_on_both_sides(OptimizerSpec const& spec, std::int64_t t = 1) {
  kernels::test::expect_update_on_both_sides(
      [&](memory::Queue& q, kernels::test::ElementwiseUpdate const& update) {
        update_by(spec, t, q, update);
      },
      spec.states.size());
}

}  // namespace tessera::optim::test
