#pragma once
/// The ranks of a job as a mesh of named axes: a value, computed without communication, the same on
/// every rank.
///
/// The axes are ordered, outermost first, and ranks are numbered in row-major order: the ranks
/// along the last axis are consecutive. The nodes of a job are a property of its ranks, not an
/// axis.

#include <compare>
#include <initializer_list>
#include <ostream>
#include <string>
#include <vector>

#include "tessera/topology/rank_groups.hpp"

namespace tessera::topology {

/// What the ranks along an axis divide among them.
///
/// replicate: samples. Each rank has a copy of the model states (data parallelism).
/// shard: samples and model states (ZeRO).
/// sequence: the tokens of each sequence. The ranks along it read the same samples.
/// expert: samples and the experts of a layer. The ranks along it send tokens to each other.
enum class Axis { replicate, shard, sequence, expert };

/// "replicate", "shard", "sequence", "expert"
char const* name_of(Axis axis);

/// Some of the axes.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(Axis axis) : bits_(1U << static_cast<unsigned>(axis)) {}
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (Axis const axis : axes) bits_ |= AxisSet(axis).bits_;
  }
  constexpr bool contains(Axis axis) const { return (bits_ & AxisSet(axis).bits_) != 0; }
  constexpr AxisSet operator|(AxisSet other) const {
    other.bits_ |= bits_;
    return other;
  }
  /// The axes that are not in this set.
  constexpr AxisSet complement() const;
  constexpr auto operator<=>(AxisSet const&) const = default;

 private:
  unsigned bits_ = 0;
};

inline constexpr AxisSet all_axes{Axis::replicate, Axis::shard, Axis::sequence, Axis::expert};
/// The axes along which ranks read different samples: those that multiply the batch.
inline constexpr AxisSet data_axes{Axis::replicate, Axis::shard, Axis::expert};

constexpr AxisSet AxisSet::complement() const {
  AxisSet out;
  out.bits_ = all_axes.bits_ & ~bits_;
  return out;
}

/// A number along an axis: of ranks in a mesh, or a coordinate of one rank.
struct AlongAxis {
  Axis axis;
  int number = 0;
  bool operator==(AlongAxis const&) const = default;
};

/// The axes of a mesh with their sizes, and the coordinates of each rank.
class Mesh {
 public:
  /// @param sizes ranks along each axis, outermost axis first. An axis of one rank is the same as
  /// an absent one.
  /// @throws InternalError for a size below 1 or an axis that is given twice
  explicit Mesh(std::vector<AlongAxis> const& sizes);

  /// The axes with more than one rank, outermost first.
  std::vector<AlongAxis> const& sizes() const { return sizes_; }
  /// Ranks of a group along @p axes; 1 where the mesh has none of them.
  int size(AxisSet axes) const;
  int size() const { return size(all_axes); }
  /// Position of @p rank in its group along @p axes: a coordinate for one axis, the row-major
  /// number of the coordinates for several, 0 where the mesh has none of them.
  int coordinate(int rank, AxisSet axes) const;
  /// The rank with these coordinates. A coordinate that is left out is 0.
  int rank_at(std::vector<AlongAxis> const& coordinates) const;

  /// The group of the ranks that differ from @p rank in coordinates of @p axes only, in the order
  /// of the ranks. Its name is that of the axes and its color: "shard group 3".
  RankGroup group(AxisSet axes, int rank) const;
  /// The ranks of that group, ascending.
  std::vector<int> ranks_of_group(AxisSet axes, int rank) const;

  /// Ranks that read different samples, and the number of @p rank among them (data parallelism).
  int data_size() const { return size(data_axes); }
  int data_coordinate(int rank) const { return coordinate(rank, data_axes); }

  bool operator==(Mesh const&) const = default;

 private:
  void expect_rank(int rank) const;
  std::vector<AlongAxis> sizes_;
};

/// The mesh of data parallelism: each @p shard_group_size consecutive ranks share one copy of the
/// model states; 0: all ranks share one.
/// @throws ConfigError when the size does not divide @p ranks
Mesh data_parallel_mesh(int ranks, int shard_group_size = 0);

/// "replicate 2 x shard 4"; "1 rank"
std::string describe(Mesh const& mesh);
std::ostream& operator<<(std::ostream& out, Mesh const& mesh);

}  // namespace tessera::topology
