#include "optimizers/table.hpp"

#include <algorithm>

#include "optimizers/segments.hpp"
#include "tessera/core/text.hpp"
#include "tessera/kernels/optimizer/muon.hpp"
#include "tessera/optim/matrix_optimizer.hpp"

namespace tessera::optim::detail {
namespace {

using Range = HyperparameterRule::Range;

std::vector<HyperparameterRule> muon_hyperparameters() {
  return {{"momentum", 0.95, Range::unit, "decay of the momentum of matrices"},
          {"beta1", 0.9, Range::unit, "decay of the mean of the gradients of other parameters"},
          {"beta2", 0.95, Range::unit, "decay of the mean of their squares"},
          {"eps", 1e-10, Range::positive, "added to the root of the mean square"},
          {"weight_decay", 0.0, Range::not_negative, "weight decay"},
          {"muon_rate", 1.0, Range::not_negative, "rate of matrices as a multiple of lr", true},
          {"adam_rate", 1.0, Range::not_negative, "rate of the others as a multiple of lr", true}};
}

/// exp_avg is the momentum of a matrix, which has no exp_avg_sq.
std::vector<StateSpec> muon_states(OptimizerSpec const&) { return {{"exp_avg"}, {"exp_avg_sq"}}; }

std::int64_t columns_of_matrix(std::vector<std::int64_t> const& shape) {
  std::int64_t count = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) count *= shape[i];
  return count;
}

class Muon final : public MatrixOptimizer {
 public:
  explicit Muon(OptimizerSpec const& spec) : spec_(spec) {}

  OptimizerSpec const& spec() const override { return spec_; }

  /// DeepSpeed's rule: two dimensions or more, and no embedding or head by name.
  bool takes_matrix(ParameterRun const& run) const override {
    std::string const name = lower_case(run.name);
    return run.shape.size() >= 2 && name.find("embed") == std::string::npos &&
           name.find("lm_head") == std::string::npos;
  }

  std::int64_t workspace(std::vector<std::int64_t> const& shape) const override {
    return kernels::orthogonalize_workspace(shape[0], columns_of_matrix(shape));
  }

  void advance(memory::Queue& queue, Segments const& segments, StepControl const& control,
               Directions const& directions) const override {
    auto parts = parts_of(segments, directions);
    for (auto& s : parts.matrices.list) {
      s.states[1] = s.states[2];  // momentum, direction
      s.weights_out = nullptr;
    }
    kernels::MuonStep step;
    step.momentum = spec_.value("momentum");
    set_segments(step, spec_, parts.matrices, control);
    kernels::muon_directions(queue, step);
  }

  void complete(memory::Queue& queue, float* matrix, std::vector<std::int64_t> const& shape,
                float* workspace) const override {
    kernels::orthogonalize(queue, matrix, shape[0], columns_of_matrix(shape), workspace);
  }

  void update_with(memory::Queue& queue, Segments const& segments, StepControl const& control,
                   Directions const& directions) const override {
    auto parts = parts_of(segments, directions);
    for (auto& s : parts.matrices.list) s.states = {s.states[2]};
    for (auto& s : parts.others.list) s.states.resize(2);
    kernels::ElementwiseUpdate matrices;
    set_segments(matrices, spec_, parts.matrices, scaled(control, "muon_rate"));
    kernels::muon_update(queue, matrices);
    update_as_adamw(queue, spec_, parts.others, scaled(control, "adam_rate"));
  }

 private:
  /// Segments of one parameter; states[2] is the direction.
  struct Parts {
    Segments matrices, others;
  };
  Parts parts_of(Segments const& segments, Directions const& directions) const {
    Parts parts{{{}, segments.gradient_dtype, segments.weights_dtype},
                {{}, segments.gradient_dtype, segments.weights_dtype}};
    Segments given = segments;
    for (std::size_t i = 0; i < given.list.size(); ++i)
      given.list[i].states.push_back(directions[i]);
    for (auto& s : parameter_segments(given).list)
      (takes_matrix(s.parameters[0]) ? parts.matrices : parts.others).list.push_back(std::move(s));
    return parts;
  }
  StepControl scaled(StepControl control, char const* factor) const {
    control.learning_rate *= spec_.value(factor);
    return control;
  }

  OptimizerSpec spec_;
};

}  // namespace

OptimizerEntry muon_entry() {
  return {{"Muon", {}, muon_hyperparameters(), {"exp_avg", "exp_avg_sq"}, 2e-2},
          muon_states,
          make_as<Muon>};
}

}  // namespace tessera::optim::detail
