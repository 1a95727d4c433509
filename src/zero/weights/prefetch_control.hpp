#pragma once
/// Measures a pass and chooses how far ahead of the computation weights are transferred: see
/// prefetch_depth.hpp.

#include <memory>
#include <optional>
#include <vector>

#include "transfer/transfer_clock.hpp"
#include "transfer/weight_store.hpp"
#include "weights/prefetch_depth.hpp"

namespace tessera::zero::detail {

/// Chooses the prefetch depths of one weight store. The first pass with an order of acquisitions
/// warms up, the second is measured, and from the third on the chosen depths hold. Until then only
/// the limits of the buffers do. All ranks choose the same depth, because gathers have one order on
/// all ranks.
class PrefetchControl {
 public:
  /// What the buffers allow for an order: MeasuredPass::earliest.
  struct Limits {
    std::vector<std::size_t> gathers;
    std::size_t read_buffers = 0;  ///< buffers of a drive; 0: there is none
  };

  PrefetchControl(comm::Collectives& comm, memory::Queue& compute, Now now = steady_now());

  /// Collective in the third pass of an order, which blocks until the second has been executed.
  void begin_pass(std::vector<UnitIndex> const& order, Limits limits);
  /// The computation asks for the next acquisition, and may use it.
  void ask();
  void receive();
  /// Acquisition @p index is transferred after @p begin, until @p end.
  void transfer(std::size_t index, memory::Event const& begin, memory::Event const& end);
  /// A drive reads @p unit after @p begin, until @p end.
  void read(UnitIndex unit, memory::Event const& begin, memory::Event const& end);
  /// Ends a pass after the last acquisition's computation.
  void end_pass();

  /// Acquisitions ahead that may be transferred, and read from a drive.
  std::size_t depth() const { return depths_.gathers; }
  std::size_t read_depth() const { return depths_.reads; }
  /// Returns the report of the longest order with chosen depths: that of training, where there is
  /// one.
  std::optional<PrefetchReport> const& report() const { return report_; }

 private:
  struct Depths {
    std::size_t gathers = no_limit, reads = no_limit;
  };
  static constexpr std::size_t no_limit = static_cast<std::size_t>(-1);

  struct Order {
    std::vector<UnitIndex> acquisitions;
    int passes = 0;
    Depths depths;
  };
  /// The compute queue writes it, also after the end of this object.
  struct Stamps {
    std::vector<double> asked, received;
    double end = 0.0;
  };
  struct Measurement {
    Limits limits;
    std::shared_ptr<Stamps> stamps;
    std::unique_ptr<TransferClock> gathers, reads;
    std::size_t next = 0;  ///< acquisition
    bool has_ended = false;
  };
  Order& order_of(std::vector<UnitIndex> const& acquisitions);
  bool measures() const { return measurement_ && !measurement_->has_ended; }
  void choose(Order& order);

  comm::Collectives& comm_;
  memory::Queue& compute_;
  Now now_;
  std::vector<Order> orders_;
  Depths depths_;
  std::optional<Measurement> measurement_;
  std::optional<PrefetchReport> report_;
  std::size_t reported_acquisitions_ = 0;
};

}  // namespace tessera::zero::detail
