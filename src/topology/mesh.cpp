#include "tessera/topology/mesh.hpp"

#include "tessera/core/error.hpp"

namespace tessera::topology {
namespace {

/// Names of groups: the ranks along axis replicate are a replica group.
char const* noun_of(Axis axis) { return axis == Axis::replicate ? "replica" : name_of(axis); }

}  // namespace

char const* name_of(Axis axis) {
  switch (axis) {
    case Axis::replicate:
      return "replicate";
    case Axis::shard:
      return "shard";
    case Axis::sequence:
      return "sequence";
    case Axis::expert:
      return "expert";
  }
  return "unknown";
}

Mesh::Mesh(std::vector<AlongAxis> const& sizes) {
  AxisSet seen;
  for (auto const& [axis, size] : sizes) {
    TESSERA_VALIDATE(size >= 1, InternalError, "axis ", name_of(axis), " of a mesh has ", size,
                     " ranks");
    TESSERA_VALIDATE(!seen.contains(axis), InternalError, "a mesh has axis ", name_of(axis),
                     " twice");
    seen = seen | axis;
    if (size > 1) sizes_.push_back({axis, size});
  }
}

int Mesh::size(AxisSet axes) const {
  int out = 1;
  for (auto const& [axis, size] : sizes_)
    if (axes.contains(axis)) out *= size;
  return out;
}

int Mesh::coordinate(int rank, AxisSet axes) const {
  expect_rank(rank);
  int out = 0, inner = size();
  for (auto const& [axis, size] : sizes_) {
    inner /= size;
    if (axes.contains(axis)) out = out * size + rank / inner % size;
  }
  return out;
}

int Mesh::rank_at(std::vector<AlongAxis> const& coordinates) const {
  for (auto const& [axis, coordinate] : coordinates)
    TESSERA_VALIDATE(coordinate >= 0 && coordinate < size(axis), InternalError, "coordinate ",
                     coordinate, " along axis ", name_of(axis), " of ", describe(*this));
  int rank = 0;
  for (auto const& [axis, size] : sizes_) {
    rank *= size;
    for (auto const& given : coordinates)
      if (given.axis == axis) rank += given.number;
  }
  return rank;
}

RankGroup Mesh::group(AxisSet axes, int rank) const {
  int const color = coordinate(rank, axes.complement());
  std::string name;
  for (auto const& along : sizes_)
    if (axes.contains(along.axis)) name += concat(name.empty() ? "" : "-", noun_of(along.axis));
  return {color, rank, size(axes), concat(name.empty() ? "single-rank" : name, " group ", color)};
}

std::vector<int> Mesh::ranks_of_group(AxisSet axes, int rank) const {
  int const color = coordinate(rank, axes.complement());
  std::vector<int> out;
  for (int member = 0; member < size(); ++member)
    if (coordinate(member, axes.complement()) == color) out.push_back(member);
  return out;
}

void Mesh::expect_rank(int rank) const {
  TESSERA_VALIDATE(rank >= 0 && rank < size(), InternalError, "rank ", rank, " is not in mesh ",
                   describe(*this));
}

Mesh data_parallel_mesh(int ranks, int shard_group_size) {
  int const shards = shard_group_size == 0 ? ranks : shard_group_size;
  return Mesh({{Axis::replicate, replica_group(ranks, 0, shards).size}, {Axis::shard, shards}});
}

std::string describe(Mesh const& mesh) {
  std::string out;
  for (auto const& [axis, size] : mesh.sizes())
    out += concat(out.empty() ? "" : " x ", name_of(axis), " ", size);
  return out.empty() ? "1 rank" : out;
}

std::ostream& operator<<(std::ostream& out, Mesh const& mesh) { return out << describe(mesh); }

}  // namespace tessera::topology
