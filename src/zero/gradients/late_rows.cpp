#include "gradients/late_rows.hpp"

#include <algorithm>
#include <utility>

#include "layout/unit_views.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::zero::detail {

void LateRows::announce(UnitIndex unit, std::size_t parameter, memory::RowList rows) {
  auto const& layout = context_.plan.unit(unit);
  if (!rules_.late_rows || CompactLayout::most_rows(layout, parameter) < 1) return;
  if (touched_.is_started()) (void)touched_.finish(context_.comm, 0);
  unit_ = unit;
  parameter_ = parameter;
  touched_.start(context_.comm, layout.parameters[parameter].shape.front(), rows);
}

bool LateRows::begin(UnitIndex unit) {
  if (rules_.reduces) count_ = 0;
  if (!touched_.is_started() || unit != unit_) return false;
  auto const most = CompactLayout::most_rows(unit_layout(), parameter_);
  auto all = touched_.finish(context_.comm, most);
  allocate(std::min(all.named, most));
  if (static_cast<std::int64_t>(all.rows.size()) > most) return false;
  count_ = static_cast<std::int64_t>(all.rows.size());
  layout_.emplace(unit_layout(), parameter_, std::move(all.rows));
  adds_to_sums_ = adds_to_shard_ = false;
  return true;
}

/// Before it is known whether the rows are few enough, so that the first step allocates.
void LateRows::allocate(std::int64_t rows) {
  std::int64_t const numel = CompactLayout::numel_of(unit_layout(), parameter_, rows),
                     block = CompactBlocks::numel_of(numel, ranks()), all = block * ranks(),
                     gaps = PartitionPlan::default_alignment *
                            static_cast<std::int64_t>(unit_layout().parameters.size()),
                     run = std::min(numel, unit_layout().shard_numel + gaps);
  bool const adds_to_shard = rules_.shards_gradients && context_.config.accumulation_steps > 1;
  grow(own_, "late rows of gradients", context_.config.dtype, all);
  if (has_sums()) grow(sums_, "sums of late rows", rules_.gradient_dtype, all);
  if (summed_dtype() != context_.config.communication_dtype)
    grow(wire_, "late rows on the wire", context_.config.communication_dtype, all);
  if (!rules_.shards_optimizer) return;
  grow(block_, "a block of late rows", Dtype::fp32, block);
  grow(run_, "own late rows", Dtype::fp32, run);
  if (rules_.gradient_dtype != Dtype::fp32 || adds_to_shard)
    grow(shard_, "late rows of the shard", rules_.gradient_dtype, run);
}

void LateRows::grow(CommBuffer& buffer, char const* name, Dtype dtype, std::int64_t numel) {
  if (buffer.bytes() < static_cast<std::size_t>(numel) * size_of(dtype))
    buffer = CommBuffer(context_.comm, name, memory::Purpose::communication, dtype, numel);
}

memory::TensorView LateRows::of_run(CommBuffer const& buffer) const {
  return buffer.view(0, run_begin(rank() + 1) - run_begin(rank()));
}

/// The late elements of a flat buffer that begins at @p from_begin in the unit.
void LateRows::pick(memory::TensorView from, UnitOffset from_begin, memory::TensorView out,
                    std::int64_t out_begin) const {
  auto const size = size_of(out.dtype());
  for (auto const& piece : layout_->pieces(from_begin, from_begin + from.numel()))
    memory::copy(context_.compute, offset(out.data(), out.dtype(), piece.here - out_begin),
                 offset(from.data(), from.dtype(), piece.in_unit - from_begin),
                 static_cast<std::size_t>(piece.numel) * size);
}

void LateRows::keep(memory::TensorView whole) {
  pick(whole, UnitOffset(0), own_.view(0, layout_->numel()), 0);
}

void LateRows::keep_sums(memory::TensorView whole, bool adds) {
  adds_to_sums_ = adds;
  if (adds) pick(whole, UnitOffset(0), sums_.view(0, layout_->numel()), 0);
}

void LateRows::keep_shard(memory::TensorView shard) {
  adds_to_shard_ = true;
  pick(shard, shard_begin(rank()), of_run(shard_), run_begin(rank()));
}

memory::GradientLease LateRows::lease() const {
  UnitLayout here = unit_layout();
  for (std::size_t p = 0; p < here.parameters.size(); ++p)
    here.parameters[p].offset = UnitOffset(layout_->begin_of(p));
  here.parameters[parameter_].shape.front() = static_cast<std::int64_t>(layout_->rows().size());
  return {parameter_views(here, own_.at(0), own_.dtype()), memory::WriteMode::add, layout_->rows()};
}

void LateRows::reduce() {
  auto& compute = context_.compute;
  std::int64_t const numel = layout_->numel(), block = blocks().block();
  if (has_sums() && adds_to_sums_)
    kernels::add(compute, sums_.view(0, numel), own_.view(0, numel));
  else if (has_sums())
    kernels::cast(compute, sums_.view(0, numel), own_.view(0, numel));
  CommBuffer const* sent = &summed();
  if (sent->dtype() != context_.config.communication_dtype) {
    kernels::cast(compute, wire_.view(0, numel), sent->view(0, numel));
    sent = &wire_;
  }
  auto const ready = compute.record();
  if (!rules_.shards_optimizer) {
    last_ = context_.comm.all_reduce(sent->view(0, numel), comm::ReduceOp::sum, ready);
    return;
  }
  auto const out = block_.view(0, block);
  auto const summed = context_.comm.reduce_scatter(
      sent->view(0, block * ranks()), {block, block, 0}, out, memory::WriteMode::overwrite, ready);
  last_ = exchange(out, summed.event());
}

comm::Pending LateRows::exchange(memory::TensorView block, memory::Event const& summed) {
  auto const over = blocks();
  return context_.comm.all_to_all(block, over.owners_of_block(rank()), of_run(run_),
                                  over.blocks_of_run(rank()), summed);
}

/// The sums of what this rank updates, in the dtype of the gradients.
memory::TensorView LateRows::result() {
  auto& compute = context_.compute;
  if (!rules_.shards_optimizer) {
    auto const sums = summed().view(0, layout_->numel());
    if (summed().dtype() != context_.config.communication_dtype)
      kernels::cast(compute, sums, wire_.view(0, layout_->numel()));
    return sums;
  }
  auto const run = of_run(run_);
  if (adds_to_shard_)
    kernels::add(compute, of_run(shard_), run);
  else if (rules_.gradient_dtype != Dtype::fp32)
    kernels::cast(compute, of_run(shard_), run);
  else
    return run;
  return of_run(shard_);
}

void LateRows::finish(memory::TensorView region) {
  context_.comm.wait(std::exchange(last_, {}));
  auto const sums = result();
  bool const shards = rules_.shards_optimizer;
  UnitOffset const begin = shards ? shard_begin(rank()) : UnitOffset(0);
  std::int64_t const first = shards ? run_begin(rank()) : 0;
  for (auto const& piece : layout_->pieces(begin, begin + region.numel()))
    memory::copy(context_.compute, offset(region.data(), region.dtype(), piece.in_unit - begin),
                 offset(sums.data(), sums.dtype(), piece.here - first),
                 static_cast<std::size_t>(piece.numel) * size_of(region.dtype()));
  layout_.reset();
}

void LateRows::wait_all() {
  if (touched_.is_started()) (void)touched_.finish(context_.comm, 0);
  context_.comm.wait(std::exchange(last_, {}));
}

std::size_t LateRows::bytes() const {
  std::size_t sum = touched_.bytes();
  for (auto const* buffer : {&own_, &sums_, &wire_, &block_, &run_, &shard_})
    sum += buffer->bytes();
  return sum;
}

}  // namespace tessera::zero::detail
