#include "optimizer/matrix_update.hpp"

#include <algorithm>
#include <optional>

#include "layout/group_runs.hpp"
#include "layout/unit_views.hpp"
#include "optimizer/parameter_sums.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::zero::detail {

MatrixUpdate::MatrixUpdate(StoreContext const& context, optim::MatrixOptimizer const& optimizer,
                           memory::MemorySpace space)
    : context_(context) {
  std::int64_t workspace = 0;
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) {
    auto& of_unit = matrices_.emplace_back();
    UnitOffset const begin = context_.ownership.begin(u);
    for (auto const& run : group_runs(context_.plan.unit(u), begin,
                                      begin + context_.ownership.numel(u), optimizer.spec()))
      for (auto const& part : run.parameters) {
        if (!optimizer.takes_matrix(part)) continue;
        std::int64_t const at = run.begin.value() + part.segment_offset;
        of_unit.push_back({at - part.parameter_offset, part.shape});
        workspace = std::max(workspace, optimizer.workspace(part.shape));
      }
  }
  directions_ = make_comm_buffer(context_, "directions of a unit", Dtype::fp32,
                                 context_.plan.largest_unit(), space);
  workspace_ = {"workspace of a matrix", memory::Purpose::workspace,
                static_cast<std::size_t>(workspace) * sizeof(float), space};
}

/// Ranks that share a matrix complete it each: the same bits in every stage.
void MatrixUpdate::update(memory::Queue& queue, optim::MatrixOptimizer const& optimizer,
                          Region const& region, optim::StepControl const& control) const {
  auto const begin = context_.ownership.begin(region.unit).value();
  optim::Directions directions;
  for (auto const& s : region.segments.list)
    directions.push_back(static_cast<float*>(
        directions_.at(begin + (static_cast<float const*>(s.master) - region.master))));
  optimizer.advance(queue, region.segments, control, directions);
  if (!context_.ownership.replicated && context_.comm.size() > 1)
    gather_directions(queue, region.unit);
  for (auto const& matrix : matrices_[position(region.unit)])
    optimizer.complete(queue, static_cast<float*>(directions_.at(matrix.offset)), matrix.shape,
                       static_cast<float*>(workspace_.data()));
  optimizer.update_with(queue, region.segments, control, directions);
}

void MatrixUpdate::gather_directions(memory::Queue& queue, UnitIndex unit) const {
  auto const& layout = context_.plan.unit(unit);
  auto const after = queue.record();
  std::optional<comm::Pending> last;
  for (auto const& blocks :
       cut_blocks(layout, context_.plan.ranks(), context_.config.allgather_bucket_size))
    last = context_.comm.all_gather(directions_.view(0, layout.padded_numel), blocks, after);
  last->order_before(queue);
  if (memory::memory_space_of(queue) == memory::MemorySpace::host) context_.comm.wait(*last);
}

}  // namespace tessera::zero::detail
