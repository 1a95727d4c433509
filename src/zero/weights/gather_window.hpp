#pragma once
/// Which units of stage 3 are gathered and which come next: a value, which owns no buffer and
/// starts no transfer.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/zero/layout/partition_plan.hpp"

namespace tessera::zero::detail {

/// The acquisitions of a pass and the units that are gathered for them. The owner gathers and drops
/// units as the window says, and tells it with add(), lease(), release() and remove().
class GatherWindow {
 public:
  struct Limits {
    /// Elements of the units that are gathered ahead: prefetch_bucket_size. One unit always is.
    std::int64_t ahead = 0;
    std::int64_t live = 0;  ///< elements of all gathered units: max_live_parameters
  };
  /// @param numel elements of each unit
  GatherWindow(std::vector<std::int64_t> const& numel, Limits limits);

  /// Starts a pass that acquires units in this order. Gathered units may be idle afterwards.
  void begin_pass(std::vector<UnitIndex> order);
  /// The next acquisition of the order begins.
  void advance() { ++next_; }

  /// The gather of @p unit has started.
  void add(UnitIndex unit);
  /// @return true for the first lease since add(): it waits for the gather in flight
  bool lease(UnitIndex unit);
  void release(UnitIndex unit);
  /// The buffer of @p unit is free.
  void remove(UnitIndex unit);
  bool is_gathered(UnitIndex unit) const { return of(unit).state != State::absent; }
  bool is_leased(UnitIndex unit) const { return of(unit).leases > 0; }
  /// Whether @p unit is gathered without leases and should be dropped: it is neither acquired again
  /// within two acquisitions, nor would it be prefetched anyway.
  bool is_idle(UnitIndex unit) const;

  /// The units to gather now, in this order: those that come next and are less than @p depth
  /// acquisitions ahead, up to the limits.
  std::vector<UnitIndex> next_gathers(std::size_t depth) const;
  /// Calls visit(unit, acquisitions until then) once for each unit of the next @p depth
  /// acquisitions, until it returns false.
  template <class Visit>
  void look_ahead(std::size_t depth, Visit visit) const {
    for (std::size_t k = next_; k < order_.size() && k - next_ < depth; ++k)
      if (previous_end_[k] <= next_ && !visit(order_[k], k - next_)) return;
  }
  static constexpr std::size_t any_depth = static_cast<std::size_t>(-1);

  /// A step updates all units, and then the same order is expected again: each unit may be gathered
  /// for it once it is updated.
  void begin_updates();
  void set_updated(UnitIndex unit) { of(unit).is_stale = false; }
  /// Gathers for the next pass wait for it to begin.
  void end_updates() { is_updating_ = false; }
  bool is_updating() const { return is_updating_; }

  /// The place in the order of the acquisition of @p unit that is at hand or comes next.
  std::size_t next_acquisition(UnitIndex unit) const;
  /// What the limits allow in a pass with this order: MeasuredPass::earliest.
  std::vector<std::size_t> earliest_gathers(std::vector<UnitIndex> const& order) const;
  std::int64_t live_numel() const { return live_numel_; }

 private:
  enum class State { absent, in_flight, live };
  struct Unit {
    std::int64_t numel = 0;
    State state = State::absent;
    int leases = 0;
    bool is_stale = false;  ///< the step at hand has yet to update it
  };
  Unit& of(UnitIndex unit) { return units_[position(unit)]; }
  Unit const& of(UnitIndex unit) const { return units_[position(unit)]; }
  bool stays(UnitIndex unit) const;

  std::vector<Unit> units_;
  Limits limits_;
  std::vector<UnitIndex> order_;  ///< order of the pass at hand, or of the last one and the next
  /// Index after the unit's previous acquisition, for each acquisition; 0: it is the first.
  std::vector<std::size_t> previous_end_;
  std::size_t next_ = 0;  ///< the next acquisition's place in the order
  std::int64_t live_numel_ = 0;
  bool is_updating_ = false;
};

}  // namespace tessera::zero::detail
