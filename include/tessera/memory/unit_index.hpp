#pragma once
/// Index of a ZeRO unit, as a type that cannot be mistaken for a rank, a layer or a parameter.

#include <cstddef>
#include <ostream>

namespace tessera::memory {

/// In the order of the model's list of units: 0 is the embedding.
enum class UnitIndex : int {};

constexpr UnitIndex first_unit{0};
constexpr std::size_t position(UnitIndex unit) { return static_cast<std::size_t>(unit); }
constexpr UnitIndex& operator++(UnitIndex& unit) {
  return unit = UnitIndex(static_cast<int>(unit) + 1);
}
inline std::ostream& operator<<(std::ostream& out, UnitIndex unit) {
  return out << static_cast<int>(unit);
}

}  // namespace tessera::memory
