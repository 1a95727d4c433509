#pragma once
/// Gradients of a tied embedding that come after the rest of their unit. The head's backward pass,
/// the first, makes the gradients of the complete matrix; the embedding's, the last, adds to the
/// rows of the tokens. So the unit is reduced after the head, while the blocks compute, without
/// those late rows; they are kept apart, get their last addends there, are reduced by themselves
/// and replace what the first reduction made of them. The same numbers are added in the same order
/// as by one reduction at the end.

#include <cstdint>
#include <optional>

#include "layout/compact_layout.hpp"
#include "layout/stage_rules.hpp"
#include "transfer/comm_buffer.hpp"
#include "transfer/compact_blocks.hpp"
#include "transfer/touched_rows.hpp"
#include "transfer/weight_store.hpp"

namespace tessera::zero::detail {

class LateRows {
 public:
  LateRows(StoreContext const& context, StageRules const& rules)
      : context_(context), rules_(rules) {}

  /// Starts to find out which rows of @p parameter the ranks touch. Collective; without effect
  /// where StageRules::late_rows is false or the unit has little besides its rows.
  void announce(UnitIndex unit, std::size_t parameter, memory::RowList rows);
  /// Whether the rows of @p unit were announced and are few enough to come late: the late elements
  /// are at most half of the unit. The same on every rank. Collective; waits for the other ranks.
  /// The gradients of every rank count: ranks without samples are those of sums as a tree.
  bool begin(UnitIndex unit);
  /// From begin() until finish().
  bool has(UnitIndex unit) const { return layout_.has_value() && unit_ == unit; }

  /// Copies the late elements of @p whole, whose gradients are complete but for the last addends.
  void keep(memory::TensorView whole);
  /// Of the sums over earlier micro-steps to which those gradients are added.
  /// @param adds false: there are none, the gradients become the sums
  void keep_sums(memory::TensorView whole, bool adds);
  /// Of the rank's shard of sums over earlier micro-steps and the ranks.
  void keep_shard(memory::TensorView shard);
  /// Where the last addends go.
  memory::GradientLease lease() const;

  /// Starts the reduction of the late elements, which now have the last addends.
  void reduce();
  /// Writes the sums to their places in @p region, which this rank updates and which has the other
  /// sums. Waits for the reduction.
  void finish(memory::TensorView region);
  UnitIndex unit() const { return unit_; }
  bool is_open() const { return layout_.has_value(); }
  void wait_all();

  std::size_t bytes() const;
  /// Rows that came late after the last begin().
  std::optional<std::int64_t> count() const { return count_; }

 private:
  UnitLayout const& unit_layout() const { return context_.plan.unit(unit_); }
  int ranks() const { return context_.plan.ranks(); }
  int rank() const { return context_.comm.rank(); }
  Dtype summed_dtype() const {
    return rules_.shards_gradients ? context_.config.dtype : rules_.gradient_dtype;
  }
  bool has_sums() const { return summed_dtype() != context_.config.dtype; }
  UnitOffset shard_begin(int rank) const { return UnitOffset(rank * unit_layout().shard_numel); }
  /// A rank's late elements are [run_begin(rank), run_begin(rank + 1)) of all.
  std::int64_t run_begin(int rank) const { return blocks().run_begin(rank); }
  CompactBlocks blocks() const { return {*layout_, unit_layout(), ranks()}; }
  void allocate(std::int64_t rows);
  void grow(CommBuffer& buffer, char const* name, Dtype dtype, std::int64_t numel);
  /// What is reduced: the gradients, or the sums to which they are added.
  CommBuffer const& summed() const { return has_sums() ? sums_ : own_; }
  memory::TensorView of_run(CommBuffer const& buffer) const;
  void pick(memory::TensorView from, UnitOffset from_begin, memory::TensorView out,
            std::int64_t out_begin) const;
  /// Sends the parts of the block that this rank has summed to their owners.
  comm::Pending exchange(memory::TensorView block, memory::Event const& summed);
  memory::TensorView result();

  StoreContext context_;
  StageRules rules_;
  TouchedRows touched_;
  UnitIndex unit_ = first_unit;
  std::size_t parameter_ = 0;
  std::optional<CompactLayout> layout_;
  bool adds_to_sums_ = false, adds_to_shard_ = false;
  CommBuffer own_, sums_, wire_;    ///< of all late elements
  CommBuffer block_, run_, shard_;  ///< of this rank's part
  comm::Pending last_;
  std::optional<std::int64_t> count_;
};

}  // namespace tessera::zero::detail
