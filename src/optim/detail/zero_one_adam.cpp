#include "detail/zero_one_adam.hpp"

#include <algorithm>

#include "detail/one_bit.hpp"
#include "tessera/kernels/optimizer/one_bit.hpp"
#include "tessera/optim/compression.hpp"

namespace tessera::optim::detail {
namespace {

using Range = HyperparameterRule::Range;

std::vector<HyperparameterRule> rules() {
  auto out = one_bit_rules();
  out.push_back(
      {"var_freeze_step", 100000.0, Range::positive, "last step that updates the mean square"});
  out.push_back({"var_update_scaler", 16.0, Range::positive,
                 "updates of the mean square until they are half as often, signs in between"});
  out.push_back({"local_step_scaler", 32678.0, Range::positive,
                 "steps after var_freeze_step until exchanges are half as often"});
  out.push_back({"local_step_clipper", 16.0, Range::positive, "most steps between two exchanges"});
  return out;
}

std::vector<StateSpec> states(OptimizerSpec const&) {
  return with_errors({{"exp_avg"}, {"exp_avg_sq"}, {"shared_weights"}});
}

/// States by their places in the list.
enum State : std::size_t { exp_avg, exp_avg_sq, shared_weights, worker_error };

class ZeroOneAdam final : public Optimizer, public Compression {
 public:
  explicit ZeroOneAdam(OptimizerSpec const& spec) : spec_(spec) {}

  OptimizerSpec const& spec() const override { return spec_; }

  void update(memory::Queue& queue, Segments const& segments,
              StepControl const& control) const override {
    update_as_adam(queue, spec_, segments, control);
  }

  StepCommunication communication(std::int64_t step) const override {
    if (local_step(step) > 0)
      return {.reduces_gradients = false,
              .exchanges = ends_interval(step),
              .accumulates = true,
              .clears_errors = local_step(step) == 1,
              .phase = "local steps"};
    bool const reduces = updates_variance(step, count("var_update_scaler"));
    return {.reduces_gradients = reduces,
            .exchanges = !reduces,
            .phase = step <= count("var_update_scaler") ? "warm-up" : "compressed"};
  }

  void advance(memory::Queue& queue, Segments const& segments,
               StepControl const& control) const override {
    bool const is_local = local_step(control.step) > 0;
    auto parts = is_local
                     ? with_states(segments, {exp_avg, exp_avg_sq, worker_error, shared_weights})
                     : with_states(segments, {worker_error});
    if (communication(control.step).exchanges)
      for (auto& s : parts.list) s.weights_out = nullptr;
    auto step = step_of(parts, control);
    if (!is_local) return kernels::one_bit_gradient(queue, step);
    step.opens_interval = local_step(control.step) == 1 || ends_interval(control.step - 1);
    kernels::zero_one_local(queue, step);
  }

  void complete(memory::Queue& queue, Segments const& segments, StepControl const& control,
                Exchange const& exchange) const override {
    if (local_step(control.step) == 0)
      return kernels::zero_one_adam(
          queue,
          step_of(with_gradients(with_states(segments, {exp_avg, exp_avg_sq}), exchange), control));
    auto step = step_of(
        with_gradients(with_states(segments, {exp_avg, exp_avg_sq, shared_weights}), exchange),
        control);
    step.rate_sum = exchange.rate_sum;
    kernels::zero_one_exchange(queue, step);
  }

 private:
  std::int64_t count(char const* name) const {
    return std::max<std::int64_t>(static_cast<std::int64_t>(spec_.value(name)), 1);
  }
  /// 1, 2, ... after var_freeze_step, else 0.
  std::int64_t local_step(std::int64_t step) const {
    return std::max<std::int64_t>(step - count("var_freeze_step"), 0);
  }
  bool ends_interval(std::int64_t step) const {
    return step % local_interval(local_step(step), count("local_step_scaler"),
                                 count("local_step_clipper")) ==
           0;
  }
  kernels::ZeroOneStep step_of(Segments const& segments, StepControl const& control) const {
    return one_bit_step<kernels::ZeroOneStep>(spec_, segments, control);
  }

  OptimizerSpec spec_;
};

std::unique_ptr<Optimizer> make(OptimizerSpec const& spec) {
  return std::make_unique<ZeroOneAdam>(spec);
}

}  // namespace

bool updates_variance(std::int64_t t, std::int64_t scaler) {
  std::int64_t last = 0;  // update before this interval
  for (std::int64_t interval = 1;; interval *= 2) {
    std::int64_t const first = (last / interval + 1) * interval;
    last = first + (scaler - 1) * interval;
    if (t <= last) return t % interval == 0;
  }
}

std::int64_t local_interval(std::int64_t k, std::int64_t scaler, std::int64_t clipper) {
  std::int64_t interval = 1;
  for (std::int64_t doublings = (k - 1) / scaler; doublings > 0 && interval < clipper; --doublings)
    interval *= 2;
  return std::min(interval, clipper);
}

OptimizerEntry zero_one_adam_entry() {
  return {{"ZeroOneAdam",
           {},
           rules(),
           {"exp_avg", "exp_avg_sq", "shared_weights", worker_error_name, server_error_name}},
          states,
          make};
}

}  // namespace tessera::optim::detail
