#include "gradients/unit_progress.hpp"

#include <algorithm>
#include <utility>

#include "tessera/core/error.hpp"

namespace tessera::zero::detail {
namespace {

std::vector<Run> untied_runs(memory::UnitSpec const& spec, UnitLayout const& layout) {
  bool const tied = std::any_of(spec.parameters.begin(), spec.parameters.end(),
                                [](auto const& p) { return !p.aliases.empty(); });
  std::vector<Run> out;
  for (std::size_t i = 0; tied && i < spec.parameters.size(); ++i)
    if (spec.parameters[i].aliases.empty())
      out.push_back({layout.parameters[i].offset, layout.parameters[i].numel});
  return out;
}

void clear(memory::Queue& compute, memory::TensorView gradients, std::vector<Run> const& runs) {
  for (auto const& run : runs)
    kernels::fill(compute, part(gradients, run.begin.value(), run.numel), 0.0f);
}

}  // namespace

UnitProgress::UnitProgress(PartitionPlan const& plan, std::vector<memory::UnitSpec> const& units)
    : plan_(&plan), states_(units.size(), State::untouched) {
  for (std::size_t u = 0; u < units.size(); ++u) {
    untied_.push_back(untied_runs(units[u], plan.units()[u]));
    padding_.push_back(padding_runs(plan.units()[u]));
  }
  begin_micro_step();
}

void UnitProgress::begin_micro_step() {
  for (std::size_t u = 0; u < states_.size(); ++u)
    states_[u] = plan_->units()[u].parameters.empty() ? State::complete : State::untouched;
}

bool UnitProgress::open(UnitIndex unit) {
  TESSERA_VALIDATE(state(unit) != State::complete, InternalError, "gradients of unit ",
                   plan_->unit(unit).name,
                   " are requested after gradient_complete() in the same micro-step; call "
                   "gradient_complete() last");
  return std::exchange(state(unit), State::open) == State::untouched;
}

void UnitProgress::complete(UnitIndex unit) {
  TESSERA_VALIDATE(state(unit) == State::open, InternalError, "gradients of unit ",
                   plan_->unit(unit).name, " cannot be completed: gradient_complete() was called ",
                   state(unit) == State::complete ? "twice in this micro-step"
                                                  : "before gradient() in this micro-step");
  state(unit) = State::complete;
}

void UnitProgress::expect_all_complete() const {
  for (std::size_t u = 0; u < states_.size(); ++u)
    TESSERA_VALIDATE(states_[u] == State::complete, InternalError,
                     "the micro-step ends without complete gradients of unit ",
                     plan_->units()[u].name,
                     "; every unit needs gradient() and gradient_complete() in every micro-step");
}

void UnitProgress::clear_untied(memory::Queue& compute, UnitIndex unit,
                                memory::TensorView gradients) const {
  clear(compute, gradients, untied_[position(unit)]);
}

void UnitProgress::clear_padding(memory::Queue& compute, UnitIndex unit,
                                 memory::TensorView gradients) const {
  clear(compute, gradients, padding_[position(unit)]);
}

}  // namespace tessera::zero::detail
