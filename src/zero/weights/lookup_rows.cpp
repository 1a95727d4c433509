#include "weights/lookup_rows.hpp"

#include <algorithm>
#include <utility>

#include "layout/unit_views.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::zero::detail {

void LookupRows::announce(UnitIndex unit, std::size_t parameter, memory::RowList rows) {
  auto const& layout = unit_layout(unit);
  if (CompactLayout::most_rows(layout, parameter, largest_part) < 1) return;
  if (touched_.is_started()) (void)touched_.finish(context_.comm, 0);
  announced_unit_ = unit;
  announced_parameter_ = parameter;
  is_planned_ = !rows.rows;
  touched_.start(context_.comm, layout.parameters[parameter].shape.front(), rows);
}

bool LookupRows::begin(UnitIndex unit) {
  if (!touched_.is_started() || unit != announced_unit_) return false;
  auto const most = CompactLayout::most_rows(unit_layout(unit), announced_parameter_, largest_part);
  auto all = touched_.finish(context_.comm, most + 1);
  unit_ = unit;
  layout_.reset();
  allocate(std::min(all.named, most));
  bool const are_few = static_cast<std::int64_t>(all.rows.size()) <= most;
  count_ = are_few ? static_cast<std::int64_t>(all.rows.size()) : 0;
  if (are_few) layout_.emplace(unit_layout(unit), announced_parameter_, std::move(all.rows));
  return are_few;
}

/// Before it is known whether the rows are few enough, so that the first step allocates.
void LookupRows::allocate(std::int64_t rows) {
  auto const& unit = unit_layout(unit_);
  std::int64_t const numel = CompactLayout::numel_of(unit, announced_parameter_, rows),
                     gaps = PartitionPlan::default_alignment *
                            static_cast<std::int64_t>(unit.parameters.size()),
                     run = std::min(numel, unit.shard_numel + gaps),
                     all = CompactBlocks::numel_of(numel, ranks()) * ranks();
  auto const grow = [&](CommBuffer& buffer, char const* name, std::int64_t count) {
    Dtype const dtype = context_.config.dtype;
    if (buffer.bytes() >= static_cast<std::size_t>(count) * size_of(dtype)) return;
    wait();  // for the gather that may still use it
    buffer = CommBuffer(context_.comm, name, memory::Purpose::communication, dtype, count);
  };
  grow(run_, "own rows of an embedding", run);
  grow(all_, "rows of an embedding", all);
}

void LookupRows::gather(memory::TensorView shard, memory::Event const& ready) {
  auto& compute = context_.compute;
  auto const over = blocks();
  int const rank = context_.comm.rank();
  last_.order_before(compute);
  compute.wait(ready);
  UnitOffset const begin = over.shard_begin(rank);
  std::int64_t const first = over.run_begin(rank);
  for (auto const& piece : layout_->pieces(begin, begin + shard.numel()))
    memory::copy(compute, run_.at(piece.here - first),
                 offset(shard.data(), shard.dtype(), piece.in_unit - begin),
                 static_cast<std::size_t>(piece.numel) * size_of(shard.dtype()));
  auto const block = all_.view(rank * over.block(), over.block());
  auto const sent =
      context_.comm.all_to_all(run_.view(0, over.run_numel(rank)), over.blocks_of_run(rank), block,
                               over.owners_of_block(rank), compute.record());
  last_ = context_.comm.all_gather(all_.view(0, over.all_blocks()), {over.block(), over.block(), 0},
                                   sent.event());
}

bool LookupRows::covers(UnitIndex unit, std::size_t parameter, memory::RowList rows) const {
  if (!layout_ || unit != unit_ || parameter != layout_->parameter()) return false;
  if (is_planned_ || !rows.rows) return is_planned_ && !rows.rows;
  auto const& gathered = layout_->rows();
  return std::all_of(rows.rows, rows.rows + rows.count, [&](std::int32_t row) {
    return std::binary_search(gathered.begin(), gathered.end(), row);
  });
}

void LookupRows::write(memory::TensorView whole) {
  order_before_compute();
  for (auto const& piece : layout_->pieces(UnitOffset(0), UnitOffset(whole.numel())))
    memory::copy(context_.compute, offset(whole.data(), whole.dtype(), piece.in_unit.value()),
                 all_.at(piece.here),
                 static_cast<std::size_t>(piece.numel) * size_of(whole.dtype()));
}

void LookupRows::wait() {
  touched_.wait(context_.comm);
  context_.comm.wait(last_);
}

}  // namespace tessera::zero::detail
