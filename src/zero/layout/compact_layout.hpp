#pragma once
/// A part of a unit's flat buffer without gaps: some rows of one parameter, and all others
/// completely, in the order of the unit. So what a rank owns is together here, too.

#include <cstdint>
#include <vector>

#include "tessera/zero/layout/partition_plan.hpp"

namespace tessera::zero::detail {

class CompactLayout {
 public:
  /// @param rows of @p parameter, ascending
  CompactLayout(UnitLayout const& unit, std::size_t parameter, std::vector<std::int32_t> rows);

  /// Elements with @p rows rows.
  static std::int64_t numel_of(UnitLayout const& unit, std::size_t parameter, std::int64_t rows);
  /// The most rows with which the layout has at most 1/@p part of the unit's elements; negative:
  /// the others are more.
  static std::int64_t most_rows(UnitLayout const& unit, std::size_t parameter, int part = 2);

  std::int64_t numel() const { return numel_; }
  std::size_t parameter() const { return parameter_; }
  std::vector<std::int32_t> const& rows() const { return rows_; }
  /// First element of a parameter.
  std::int64_t begin_of(std::size_t parameter) const { return begins_[parameter]; }

  /// The first element that is not before @p at in the unit; numel() when there is none.
  std::int64_t place_of(UnitOffset at) const;
  /// Elements that are together in both.
  struct Piece {
    UnitOffset in_unit;
    std::int64_t here = 0;
    std::int64_t numel = 0;
    bool operator==(Piece const&) const = default;
  };
  /// Those of [begin, end) of the unit, as few as possible.
  std::vector<Piece> pieces(UnitOffset begin, UnitOffset end) const;

 private:
  UnitLayout const* unit_;
  std::size_t parameter_;
  std::vector<std::int32_t> rows_;
  std::int64_t width_;  ///< elements of a row
  std::vector<std::int64_t> begins_;
  std::int64_t numel_ = 0;
};

}  // namespace tessera::zero::detail
