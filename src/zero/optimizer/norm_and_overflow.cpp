#include "optimizer/norm_and_overflow.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/core/exact_sum.hpp"
#include "tessera/core/log.hpp"
#include "tessera/kernels/elementwise/gradient_statistics.hpp"

namespace tessera::zero::detail {
namespace {

constexpr auto digit_count = static_cast<std::int64_t>(ExactSum::digits);
constexpr auto value_count = static_cast<std::int64_t>(StepValues::count);
constexpr std::int64_t norm_sums = 2, value_sums = 1 + value_count;
constexpr std::size_t place_bytes = 8;  ///< bytes of a double or a digit
/// The destructor waits no longer than this for the all-reduce.
constexpr std::chrono::seconds shutdown_timeout{10};

memory::Buffer workspace(char const* name, std::size_t bytes, memory::MemorySpace space) {
  return {name, memory::Purpose::workspace, bytes, space};
}

template <class T>
void fill(void* out, std::span<T const> first, StepValues const& values) {
  auto* const place = std::copy(first.begin(), first.end(), static_cast<T*>(out));
  std::transform(values.counts.begin(), values.counts.end(), place,
                 [](std::int64_t count) { return static_cast<T>(count); });
}

}  // namespace

NormAndOverflow::NormAndOverflow(StoreContext const& context)
    : context_(context),
      sums_(context.all_ranks(), "sums of squared gradients", memory::Purpose::workspace,
            Dtype::fp64, norm_sums + value_sums),
      digits_(is_exact() ? CommBuffer(context.all_ranks(), "digits of squared gradients",
                                      memory::Purpose::workspace, Dtype::int64,
                                      2 * digit_count + value_count)
                         : CommBuffer()),
      decision_(workspace("step decision", sizeof(kernels::StepDecision),
                          memory::memory_space_of(context.compute))) {
  bool const on_device = memory::memory_space_of(context.compute) == memory::MemorySpace::device;
  values_.places =
      workspace("values of the step", static_cast<std::size_t>(value_places()) * place_bytes,
                on_device ? memory::MemorySpace::pinned : memory::MemorySpace::host);
  set_values({});
  if (!on_device) return;
  read_back_ = workspace("step decision, read back", sizeof(kernels::StepDecision),
                         memory::MemorySpace::pinned);
  sums_back_ = workspace("sums of the step, read back", value_sums * place_bytes,
                         memory::MemorySpace::pinned);
}

/// An error of the update may leave the all-reduce in flight.
NormAndOverflow::~NormAndOverflow() { (void)sums_complete_.event().wait_for(shutdown_timeout); }

std::int64_t NormAndOverflow::norm_places() const { return is_exact() ? digit_count : norm_sums; }
std::int64_t NormAndOverflow::value_places() const {
  return is_exact() ? digit_count + value_count : value_sums;
}

void NormAndOverflow::set_values(StepValues const& values) {
  TESSERA_EXPECT(values.device_addends.empty() || !is_on_host());
  values_.device_addends = values.device_addends;
  if (is_exact()) {
    ExactSum sum;
    for (double const addend : values.addends) sum.add(addend);
    sum.carry();
    fill<std::int64_t>(values_.places.data(), sum.data(), values);
  } else {
    double sum = 0.0;
    for (double const addend : values.addends) sum += addend;
    fill<double>(values_.places.data(), std::span<double const>(&sum, 1), values);
  }
}

void NormAndOverflow::compute(std::vector<kernels::GradientRun> const& shards, Dtype dtype,
                              kernels::GradientLimits const& limits) {
  if (is_exact())
    kernels::exact_squares(context_.compute, static_cast<std::int64_t*>(digits_.at(0)), shards,
                           dtype);
  else
    kernels::gradient_statistics(context_.compute, static_cast<double*>(sums_.at(0)), shards,
                                 dtype);
  precedes_update_ = limits.max_grad_norm > 0.0 || limits.skip_on_nonfinite;
  add_over_ranks(limits);
}

/// The host's update begins with the values that the host has read.
void NormAndOverflow::compute(HostGradients const& gradients,
                              kernels::GradientLimits const& limits) {
  gradients.total(context_.compute, static_cast<double*>(sums_.at(0)));
  precedes_update_ = true;
  add_over_ranks(limits);
}

/// Where the update needs only the loss scale, the control is complete without the sums.
void NormAndOverflow::add_over_ranks(kernels::GradientLimits const& limits) {
  auto& queue = context_.compute;
  auto const& summed = is_exact() ? digits_ : sums_;
  if (!context_.contributes())
    memory::zero(queue, summed.at(0), static_cast<std::size_t>(norm_places()) * place_bytes);
  memory::copy(queue, summed.at(norm_places()), values_.places.data(), values_.places.bytes());
  kernels::add_in_order(queue, static_cast<double*>(summed.at(norm_places())),
                        values_.device_addends);
  limits_ = limits;
  if (!precedes_update_) decide();
  std::optional<comm::SynchronousCalls> synchronous;
  if (precedes_update_ && queue.kind() == memory::QueueKind::inline_host)
    synchronous.emplace();  // which waits here
  sums_complete_ = context_.all_ranks().all_reduce(summed.view(0, norm_places() + value_places()),
                                                   comm::ReduceOp::sum, queue.record());
  is_complete_ = false;
  if (precedes_update_) complete();
}

void NormAndOverflow::decide() {
  kernels::compute_norm_and_overflow(context_.compute, decision(),
                                     static_cast<double const*>(sums_.at(0)), limits_);
}

/// Later work of the compute queue finds the sums of all ranks, and what follows from them.
void NormAndOverflow::complete() {
  auto& queue = context_.compute;
  sums_complete_.order_before(queue);
  if (is_exact()) round_digits();
  decide();
  if (read_back_.data())
    memory::copy(queue, read_back_.data(), decision_.data(), sizeof(kernels::StepDecision));
  if (sums_back_.data())
    memory::copy(queue, sums_back_.data(), sums_.at(norm_sums), sums_back_.bytes());
  computed_ = queue.record();
  is_complete_ = true;
}

void NormAndOverflow::round_digits() {
  auto* const sums = static_cast<double*>(sums_.at(0));
  auto const round = [sums, digits = static_cast<std::int64_t const*>(digits_.at(0))] {
    using Digits = std::span<std::int64_t const, ExactSum::digits>;
    ExactSum squares, addends;
    squares.add(Digits(digits, ExactSum::digits));
    addends.add(Digits(digits + digit_count, ExactSum::digits));
    sums[0] = squares.value();
    sums[1] = squares.is_finite() ? 0.0 : 1.0;
    sums[norm_sums] = addends.value();
    std::int64_t const* const counts = digits + 2 * digit_count;
    for (std::int64_t i = 0; i < value_count; ++i)
      sums[norm_sums + 1 + i] = static_cast<double>(counts[i]);
  };
  if (context_.compute.kind() == memory::QueueKind::inline_host)
    round();
  else
    context_.compute.submit(round);
}

kernels::StepDecision NormAndOverflow::read() {
  context_.all_ranks().wait(sums_complete_);
  if (!is_complete_) complete();
  computed_.wait("the gradient norm and overflow flag", compute_deadline);
  return *host_decision();
}

void NormAndOverflow::warn_of_unchecked_overflow() const {
  if (!limits_.skip_on_nonfinite && !host_decision()->finite)
    log::warning(
        "gradients are not finite and the update is applied: the overflow check is disabled");
}

StepSums NormAndOverflow::sums() const {
  auto const* const values =
      static_cast<double const*>(sums_back_.data() ? sums_back_.data() : sums_.at(norm_sums));
  StepSums out;
  out.addends = values[0];
  std::transform(values + 1, values + value_sums, out.counts.begin(),
                 [](double count) { return static_cast<std::int64_t>(count); });
  return out;
}

}  // namespace tessera::zero::detail
