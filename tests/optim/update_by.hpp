#pragma once
/// An element-wise optimizer as a kernel of update_case.hpp.

#include "tessera/optim/optimizer.hpp"
#include "update_case.hpp"

namespace tessera::optim::test {

/// Step @p t of the optimizer of @p spec. All segments have one learning rate.
inline void update_by(OptimizerSpec spec, std::int64_t t, memory::Queue& q,
                      kernels::ElementwiseUpdate const& update) {
  Segments segments{{}, update.gradient_dtype, update.weights_dtype, update.master_dtype};
  spec.groups.clear();
  for (auto const& s : update.segments) {
    std::vector<void*> const states(s.states.begin(), s.states.begin() + spec.states.size());
    segments.list.push_back(
        {s.master, states, s.gradient, s.weights_out, s.numel, spec.groups.size()});
    spec.groups.push_back({"", ParameterGroup::Members::all, {{"weight_decay", s.weight_decay}}});
    EXPECT_EQ(s.learning_rate, update.segments[0].learning_rate);
  }
  make_optimizer(spec)->update(q, segments,
                               {t, update.segments.at(0).learning_rate, update.control});
}

/// @param t of the step; decays of states hide differences in late ones
inline void expect_optimizer_on_both_sides(OptimizerSpec const& spec, std::int64_t t = 1) {
  kernels::test::expect_update_on_both_sides(
      [&](memory::Queue& q, kernels::ElementwiseUpdate const& update) {
        update_by(spec, t, q, update);
      },
      kernels::ElementwiseUpdate(), spec.states.size());
}

}  // namespace tessera::optim::test
