#include "optimizer/compressed_update.hpp"

#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::zero::detail {
namespace {

std::size_t state_with(OptimizerState const& state, char const* name) {
  std::size_t k = 0;
  while (k < state.count() && state.spec(k).name != name) ++k;
  TESSERA_EXPECT(k < state.count(), "the optimizer has no state ", name);
  return k;
}

}  // namespace

CompressedUpdate::CompressedUpdate(StoreContext const& context, OptimizerState& state,
                                   optim::Compression const& optimizer)
    : context_(context),
      state_(state),
      exp_avg_(state_with(state, "exp_avg")),
      worker_error_(state_with(state, optim::worker_error_name)),
      server_error_(state_with(state, optim::server_error_name)),
      exchange_(context, optimizer.scales(), memory::memory_space_of(context.compute)),
      exchanged_("exchanged values of a unit", memory::Purpose::workspace,
                 static_cast<std::size_t>(context.plan.largest_unit()) * sizeof(float),
                 memory::memory_space_of(context.compute)) {}

void CompressedUpdate::run(optim::Compression const& optimizer,
                           optim::StepCommunication const& communication,
                           optim::StepControl const& control) {
  if (communication.clears_errors) clear_errors();
  if (communication.accumulates) {
    accumulated_ = {control.step, control.learning_rate, nullptr};
    rate_sum_ += control.learning_rate;
  }
  errors_differ_ = context_.plan.ranks() > 1;
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u)
    optimizer.advance(context_.compute, state_.segments(u), control);
  // Without a learning rate the weights have not moved, and no momentum can be told from that.
  bool const has_moved = !communication.accumulates || rate_sum_ > 0.0;
  if (communication.exchanges && has_moved) exchange(optimizer, control);
}

void CompressedUpdate::exchange(optim::Compression const& optimizer,
                                optim::StepControl const& control) {
  bool const is_alone = context_.plan.ranks() == 1;
  auto const for_units = [&](auto const& work) {
    for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) work(u);
  };
  if (!is_alone) {
    for_units([&](UnitIndex u) { exchange_.send(u, state_.values(worker_error_, u)); });
    for_units([&](UnitIndex u) { exchange_.reduce(u, state_.values(server_error_, u)); });
  }
  for_units([&](UnitIndex u) {
    if (is_alone)  // nothing is compressed, nothing is lost
      take_worker_errors(u);
    else
      exchange_.receive(u, static_cast<float*>(exchanged_.data()));
    complete(optimizer, u, control);
  });
  accumulated_ = {};
  rate_sum_ = 0.0;
}

void CompressedUpdate::complete(optim::Compression const& optimizer, UnitIndex unit,
                                optim::StepControl const& control) {
  optimizer.complete(context_.compute, state_.segments(unit), control,
                     {exchanged(unit), rate_sum_});
}

void CompressedUpdate::take_worker_errors(UnitIndex unit) {
  auto const bytes =
      static_cast<std::size_t>(context_.plan.unit(unit).padded_numel) * sizeof(float);
  memory::copy(context_.compute, exchanged_.data(), state_.values(worker_error_, unit), bytes);
  memory::zero(context_.compute, state_.values(worker_error_, unit), bytes);
}

void CompressedUpdate::clear_errors() {
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) {
    auto const& unit = context_.plan.unit(u);
    auto const clear = [&](std::size_t state, std::int64_t numel) {
      memory::zero(context_.compute, state_.values(state, u),
                   static_cast<std::size_t>(numel) * sizeof(float));
    };
    clear(worker_error_, unit.padded_numel);
    clear(server_error_, unit.shard_numel);
  }
}

void CompressedUpdate::share_weights(optim::Compression const& optimizer) {
  if (!accumulated_) return;
  average(worker_error_);
  errors_differ_ = false;
  if (rate_sum_ == 0.0) {
    average(exp_avg_);
  } else {
    for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) {
      take_worker_errors(u);
      complete(optimizer, u, *accumulated_);
    }
  }
  context_.compute.record().wait("the weights that all ranks share", compute_deadline);
  accumulated_ = {};
  rate_sum_ = 0.0;
}

/// Parallel to the segments of the unit, which are of fp32 master weights.
optim::Directions CompressedUpdate::exchanged(UnitIndex unit) const {
  optim::Directions out;
  auto const* const first = state_.values(OptimizerState::master_weights, unit);
  for (auto const& s : state_.segments(unit).list)
    out.push_back(static_cast<float*>(exchanged_.data()) +
                  (static_cast<float const*>(s.master) - first));
  return out;
}

void CompressedUpdate::settle(optim::Compression const& optimizer) {
  share_weights(optimizer);
  if (errors_differ_) average(worker_error_);
  errors_differ_ = false;
}

/// Every rank's own values of @p state become their mean.
void CompressedUpdate::average(std::size_t state) {
  if (context_.plan.ranks() == 1) return;
  auto& queue = context_.compute;
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) {
    memory::TensorView const values(state_.values(state, u), Dtype::fp32,
                                    {context_.plan.unit(u).padded_numel});
    auto const sum = context_.comm.all_reduce(values, comm::ReduceOp::sum, queue.record());
    context_.comm.wait(sum);
    kernels::scale(queue, values, 1.0f / static_cast<float>(context_.plan.ranks()));
  }
  queue.record().wait("the mean over the ranks", compute_deadline);
}

}  // namespace tessera::zero::detail
