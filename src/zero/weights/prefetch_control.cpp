#include "weights/prefetch_control.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tessera::zero::detail {
namespace {

constexpr int measured_pass = 2;

std::size_t largest_unit(std::vector<UnitIndex> const& order) {
  std::size_t largest = 0;
  for (auto const unit : order) largest = std::max(largest, position(unit));
  return largest;
}

/// One buffer per acquisition.
std::vector<std::size_t> earliest_reads(std::size_t count, std::size_t buffers) {
  std::vector<std::size_t> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = i > buffers ? i - buffers : 0;
  return out;
}

}  // namespace

PrefetchControl::PrefetchControl(comm::Collectives& comm, memory::Queue& compute, Now now)
    : comm_(comm), compute_(compute), now_(std::move(now)) {}

PrefetchControl::Order& PrefetchControl::order_of(std::vector<UnitIndex> const& acquisitions) {
  auto const known = std::find_if(orders_.begin(), orders_.end(), [&](Order const& order) {
    return order.acquisitions == acquisitions;
  });
  if (known != orders_.end()) return *known;
  orders_.push_back({acquisitions, 0, {}});
  return orders_.back();
}

void PrefetchControl::begin_pass(std::vector<UnitIndex> const& order, Limits limits) {
  end_pass();
  auto& current = order_of(order);
  // another order may come between the measured pass and the next one of its order
  if (measurement_ && current.passes != measured_pass) {
    measurement_.reset();
    for (auto& other : orders_)
      if (other.passes == measured_pass) other.passes = measured_pass - 1;
  }
  ++current.passes;
  if (measurement_) choose(current);
  depths_ = current.depths;
  if (current.passes != measured_pass || order.empty()) return;
  auto const stamps = std::make_shared<Stamps>();
  stamps->asked.resize(order.size());
  stamps->received.resize(order.size());
  std::size_t const units = largest_unit(order) + 1;
  measurement_.emplace(Measurement{std::move(limits), stamps,
                                   std::make_unique<TransferClock>(order.size(), now_),
                                   std::make_unique<TransferClock>(units, now_)});
}

void PrefetchControl::ask() {
  if (!measures()) return;
  compute_.submit([stamps = measurement_->stamps, i = measurement_->next, now = now_] {
    stamps->asked[i] = now();
  });
}
void PrefetchControl::receive() {
  if (!measures()) return;
  compute_.submit([stamps = measurement_->stamps, i = measurement_->next++, now = now_] {
    stamps->received[i] = now();
  });
}
void PrefetchControl::transfer(std::size_t index, memory::Event const& begin,
                               memory::Event const& end) {
  if (measures()) measurement_->gathers->add(index, begin, end);
}
void PrefetchControl::read(UnitIndex unit, memory::Event const& begin, memory::Event const& end) {
  if (measures()) measurement_->reads->add(position(unit), begin, end);
}
void PrefetchControl::end_pass() {
  if (!measures()) return;
  measurement_->has_ended = true;
  compute_.submit([stamps = measurement_->stamps, now = now_] { stamps->end = now(); });
}

void PrefetchControl::choose(Order& order) {
  auto const measured = std::exchange(measurement_, std::nullopt);
  compute_.record().wait("the pass that is measured", compute_deadline);
  auto const& stamps = *measured->stamps;
  auto const& gathers = measured->gathers->finish();
  auto const& reads = measured->reads->finish();
  std::size_t const count = order.acquisitions.size();
  std::vector<double> gather_seconds, read_seconds, compute_seconds;
  for (std::size_t i = 0; i < count; ++i) {
    bool const comes = gathers.count[i] > 0;
    gather_seconds.push_back(comes ? gathers.mean(i) : 0.0);
    read_seconds.push_back(comes ? reads.mean(position(order.acquisitions[i])) : 0.0);
    compute_seconds.push_back((i + 1 < count ? stamps.asked[i + 1] : stamps.end) -
                              stamps.received[i]);
  }
  MeasuredPass const pass{gather_seconds, compute_seconds, measured->limits.gathers};
  MeasuredPass const drive{read_seconds, compute_seconds,
                           earliest_reads(count, measured->limits.read_buffers)};
  bool const has_drive = measured->limits.read_buffers > 0;
  std::vector<double> depths{static_cast<double>(prefetch_depth(pass)),
                             has_drive ? static_cast<double>(prefetch_depth(drive)) : 0.0};
  comm::all_reduce_values(comm_, depths, comm::ReduceOp::max);
  order.depths = {static_cast<std::size_t>(depths[0]), static_cast<std::size_t>(depths[1])};
  if (count < reported_acquisitions_) return;
  reported_acquisitions_ = count;
  report_ = PrefetchReport{
      .units = static_cast<std::int64_t>(order.depths.gathers),
      .max_units = static_cast<std::int64_t>(largest_depth(pass)),
      .read_units = static_cast<std::int64_t>(order.depths.reads),
      .max_read_units = has_drive ? static_cast<std::int64_t>(largest_depth(drive)) : 0,
      .transfer_seconds = sum_of(gather_seconds),
      .read_seconds = sum_of(read_seconds),
      .compute_seconds = sum_of(compute_seconds),
      .waiting_seconds = std::max(waiting(pass, order.depths.gathers),
                                  has_drive ? waiting(drive, order.depths.reads) : 0.0)};
}

}  // namespace tessera::zero::detail
