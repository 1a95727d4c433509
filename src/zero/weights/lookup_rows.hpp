#pragma once
/// The weights that an embedding's lookup reads: the rows of the tokens of all ranks and the unit's
/// other parameters, gathered without the rest of the unit, which is larger by far and needed
/// later or not at all. Every rank gets the same values as from the complete gather.

#include <cstdint>
#include <optional>

#include "transfer/comm_buffer.hpp"
#include "transfer/compact_blocks.hpp"
#include "transfer/touched_rows.hpp"
#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

class LookupRows {
 public:
  explicit LookupRows(StoreContext const& context) : context_(context) {}

  /// Starts to find out which rows of @p parameter the ranks will look up next. Collective; without
  /// effect where the unit has little besides its rows. An announcement that begin() has not taken
  /// up is forgotten.
  void announce(UnitIndex unit, std::size_t parameter, memory::RowList rows);
  /// Whether rows of @p unit are announced and take clearly fewer bytes than the unit: at most a
  /// quarter of its elements, because they are sent twice. The same on every rank. Waits for the
  /// other ranks. Collective.
  bool begin(UnitIndex unit);
  /// Starts the gather of the rows. Collective.
  /// @pre begin() was true  @param shard this rank's, of the unit  @param ready it has its values
  void gather(memory::TensorView shard, memory::Event const& ready);
  /// Whether the rows are gathered: later lookups of them only need write().
  bool covers(UnitIndex unit, std::size_t parameter, memory::RowList rows) const;
  /// Writes the rows to their places in @p whole, once they have arrived.
  void write(memory::TensorView whole);

  /// Orders the later work of the compute queue after what is in flight.
  void order_before_compute() { last_.order_before(context_.compute); }
  /// Blocks the host until nothing is in flight.
  void wait();
  std::size_t bytes() const { return touched_.bytes() + run_.bytes() + all_.bytes(); }
  /// Rows that were gathered after the last begin() with an announcement; 0: too many.
  std::optional<std::int64_t> count() const { return count_; }
  UnitIndex unit() const { return unit_; }

 private:
  static constexpr int largest_part = 4;  ///< of the unit: a quarter

  UnitLayout const& unit_layout(UnitIndex unit) const { return context_.plan.unit(unit); }
  int ranks() const { return context_.plan.ranks(); }
  CompactBlocks blocks() const { return {*layout_, unit_layout(unit_), ranks()}; }
  void allocate(std::int64_t rows);

  StoreContext context_;
  TouchedRows touched_;
  UnitIndex announced_unit_ = first_unit;
  std::size_t announced_parameter_ = 0;
  UnitIndex unit_ = first_unit;
  std::optional<CompactLayout> layout_;  ///< of the rows that begin() has taken up
  bool is_planned_ = false;              ///< nobody knows the rows
  CommBuffer run_;                       ///< what this rank owns of them
  CommBuffer all_;                       ///< equal blocks
  comm::Pending last_;
  std::optional<std::int64_t> count_;
};

}  // namespace tessera::zero::detail
