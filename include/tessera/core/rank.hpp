#pragma once
/// Number of a rank, as a type that cannot be mistaken for a count of ranks or for another index.

#include <cstddef>
#include <ostream>

namespace tessera {

/// Rank in MPI_COMM_WORLD.
enum class Rank : int {};

constexpr Rank first_rank{0};
constexpr int value(Rank rank) { return static_cast<int>(rank); }
constexpr std::size_t position(Rank rank) { return static_cast<std::size_t>(rank); }
constexpr Rank& operator++(Rank& rank) { return rank = Rank(value(rank) + 1); }
inline std::ostream& operator<<(std::ostream& out, Rank rank) { return out << value(rank); }

}  // namespace tessera
