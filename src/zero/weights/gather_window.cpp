#include "weights/gather_window.hpp"

#include <algorithm>
#include <utility>

#include "tessera/core/error.hpp"

namespace tessera::zero::detail {
namespace {

/// A released unit that is acquired again within this many acquisitions stays gathered, regardless
/// of the limits.
constexpr std::size_t imminent = 2;

}  // namespace

GatherWindow::GatherWindow(std::vector<std::int64_t> const& numel, Limits limits)
    : limits_(limits) {
  for (auto const n : numel) units_.push_back({n});
}

void GatherWindow::begin_pass(std::vector<UnitIndex> order) {
  order_ = std::move(order);
  next_ = 0;
  is_updating_ = false;
  std::vector<std::size_t> end(units_.size(), 0);  // after the last acquisition of each unit so far
  previous_end_.clear();
  for (std::size_t k = 0; k < order_.size(); ++k)
    previous_end_.push_back(std::exchange(end[position(order_[k])], k + 1));
}

void GatherWindow::add(UnitIndex unit) {
  TESSERA_EXPECT(!is_gathered(unit), "unit ", unit, " is gathered twice");
  of(unit).state = State::in_flight;
  live_numel_ += of(unit).numel;
}

bool GatherWindow::lease(UnitIndex unit) {
  TESSERA_EXPECT(is_gathered(unit), "unit ", unit, " is leased before it is gathered");
  ++of(unit).leases;
  return std::exchange(of(unit).state, State::live) == State::in_flight;
}

void GatherWindow::release(UnitIndex unit) {
  TESSERA_EXPECT(is_leased(unit), "unit ", unit, " released without a lease");
  --of(unit).leases;
}

void GatherWindow::remove(UnitIndex unit) {
  TESSERA_EXPECT(is_gathered(unit), "unit ", unit, " is dropped twice");
  of(unit).state = State::absent;
  of(unit).leases = 0;
  live_numel_ -= of(unit).numel;
}

bool GatherWindow::is_idle(UnitIndex unit) const {
  return is_gathered(unit) && !is_leased(unit) && !stays(unit);
}

bool GatherWindow::stays(UnitIndex unit) const {
  bool found = false;
  std::int64_t ahead = 0;
  look_ahead(any_depth, [&](UnitIndex coming, std::size_t distance) {
    ahead += of(coming).numel;
    bool const affordable = ahead <= limits_.ahead && live_numel_ <= limits_.live;
    if (!affordable && distance >= imminent) return false;
    found = coming == unit;
    return !found;
  });
  return found;
}

std::vector<UnitIndex> GatherWindow::next_gathers(std::size_t depth) const {
  std::vector<UnitIndex> out;
  std::int64_t ahead = 0, live = live_numel_;
  look_ahead(depth, [&](UnitIndex unit, std::size_t) {
    auto const& u = of(unit);
    if (u.leases > 0) return true;
    if (u.is_stale || (ahead > 0 && ahead + u.numel > limits_.ahead)) return false;
    if (!is_gathered(unit)) {
      if (live + u.numel > limits_.live) return false;
      live += u.numel;
      out.push_back(unit);
    }
    ahead += u.numel;
    return true;
  });
  return out;
}

void GatherWindow::begin_updates() {
  for (auto& unit : units_) unit.is_stale = true;
  next_ = 0;
  is_updating_ = true;
}

std::size_t GatherWindow::next_acquisition(UnitIndex unit) const {
  auto const from = order_.begin() + static_cast<std::ptrdiff_t>(next_ > 0 ? next_ - 1 : 0);
  return static_cast<std::size_t>(std::find(from, order_.end(), unit) - order_.begin());
}

std::vector<std::size_t> GatherWindow::earliest_gathers(std::vector<UnitIndex> const& order) const {
  std::vector<std::size_t> out(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    std::int64_t ahead = of(order[i]).numel;
    std::size_t from = i;
    while (from > 0 && ahead + of(order[from - 1]).numel <= limits_.live &&
           (from == i || ahead <= limits_.ahead))
      ahead += of(order[--from]).numel;
    out[i] = from;
  }
  return out;
}

}  // namespace tessera::zero::detail
