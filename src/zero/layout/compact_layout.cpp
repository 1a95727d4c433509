#include "layout/compact_layout.hpp"

#include <algorithm>
#include <utility>

#include "tessera/core/rounding.hpp"

namespace tessera::zero::detail {
namespace {

/// Parameters begin at multiples of it, as in a unit.
constexpr std::int64_t alignment = PartitionPlan::default_alignment;

std::int64_t aligned(std::int64_t numel) { return round_up(numel, alignment); }

std::int64_t width_of(ParameterSlot const& slot) { return slot.numel / slot.shape.front(); }

}  // namespace

CompactLayout::CompactLayout(UnitLayout const& unit, std::size_t parameter,
                             std::vector<std::int32_t> rows)
    : unit_(&unit),
      parameter_(parameter),
      rows_(std::move(rows)),
      width_(width_of(unit.parameters[parameter])) {
  auto const count = static_cast<std::int64_t>(rows_.size());
  for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
    begins_.push_back(numel_);
    numel_ += aligned(p == parameter ? count * width_ : unit.parameters[p].numel);
  }
}

std::int64_t CompactLayout::numel_of(UnitLayout const& unit, std::size_t parameter,
                                     std::int64_t rows) {
  std::int64_t out = aligned(rows * width_of(unit.parameters[parameter]));
  for (std::size_t p = 0; p < unit.parameters.size(); ++p)
    if (p != parameter) out += aligned(unit.parameters[p].numel);
  return out;
}

std::int64_t CompactLayout::most_rows(UnitLayout const& unit, std::size_t parameter, int part) {
  std::int64_t const room = unit.numel / part - numel_of(unit, parameter, 0) - alignment;
  return room / width_of(unit.parameters[parameter]);
}

std::int64_t CompactLayout::place_of(UnitOffset at) const {
  for (std::size_t p = 0; p < unit_->parameters.size(); ++p) {
    auto const& slot = unit_->parameters[p];
    if (at <= slot.offset) return begins_[p];
    if (at >= slot.end()) continue;
    std::int64_t const element = at - slot.offset;
    if (p != parameter_) return begins_[p] + element;
    auto const row = std::lower_bound(rows_.begin(), rows_.end(), element / width_);
    std::int64_t const before = begins_[p] + (row - rows_.begin()) * width_;
    return row != rows_.end() && *row == element / width_ ? before + element % width_ : before;
  }
  return numel_;
}

std::vector<CompactLayout::Piece> CompactLayout::pieces(UnitOffset begin, UnitOffset end) const {
  std::vector<Piece> out;
  auto const add = [&](UnitOffset from, std::int64_t here, std::int64_t numel) {
    UnitOffset const first = std::max(begin, from), last = std::min(end, from + numel);
    if (first >= last) return;
    Piece const piece{first, here + (first - from), last - first};
    if (!out.empty() && out.back().in_unit + out.back().numel == piece.in_unit &&
        out.back().here + out.back().numel == piece.here)
      out.back().numel += piece.numel;
    else
      out.push_back(piece);
  };
  for (std::size_t p = 0; p < unit_->parameters.size(); ++p) {
    auto const& slot = unit_->parameters[p];
    if (p != parameter_) {
      add(slot.offset, begins_[p], slot.numel);
      continue;
    }
    for (std::size_t i = 0; i < rows_.size(); ++i)
      add(slot.offset + rows_[i] * width_, begins_[p] + static_cast<std::int64_t>(i) * width_,
          width_);
  }
  return out;
}

}  // namespace tessera::zero::detail
