#pragma once
/// Element offsets as types that cannot be mixed: a number of elements counts from the start of a
/// parameter, of a unit's flat buffer, of a rank's shard of a unit or of a rank's partition.
/// ParameterSlot and UnitLayout convert between them.

#include <compare>
#include <cstdint>
#include <ostream>

namespace tessera::zero {

/// An offset plus or minus a count of elements is an offset of the same kind; the difference of two
/// offsets of one kind is a count.
template <class Kind>
class ElementOffset {
 public:
  constexpr ElementOffset() = default;
  constexpr explicit ElementOffset(std::int64_t value) : value_(value) {}
  constexpr std::int64_t value() const { return value_; }

  constexpr ElementOffset& operator+=(std::int64_t count) {
    value_ += count;
    return *this;
  }
  constexpr ElementOffset& operator-=(std::int64_t count) {
    value_ -= count;
    return *this;
  }
  friend constexpr ElementOffset operator+(ElementOffset a, std::int64_t count) {
    return a += count;
  }
  friend constexpr ElementOffset operator-(ElementOffset a, std::int64_t count) {
    return a -= count;
  }
  friend constexpr std::int64_t operator-(ElementOffset a, ElementOffset b) {
    return a.value_ - b.value_;
  }
  friend constexpr auto operator<=>(ElementOffset, ElementOffset) = default;
  friend std::ostream& operator<<(std::ostream& out, ElementOffset a) { return out << a.value_; }

 private:
  std::int64_t value_ = 0;
};

using ParameterOffset = ElementOffset<struct OfParameter>;  ///< in a parameter, row-major
using UnitOffset = ElementOffset<struct OfUnit>;            ///< in a unit's flat buffer
using ShardOffset = ElementOffset<struct OfShard>;          ///< in a rank's shard of a unit
using PartitionOffset = ElementOffset<struct OfPartition>;  ///< in a rank's partition

}  // namespace tessera::zero
