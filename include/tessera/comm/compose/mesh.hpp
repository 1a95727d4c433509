#pragma once
/// The communicators of a mesh of ranks: one for each group along an axis or along several.

#include <map>
#include <memory>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/memory/axis_communicator.hpp"
#include "tessera/topology/mesh.hpp"

namespace tessera::comm {

/// Owner of the communicators of a topology::Mesh. A communicator is made when it is first asked
/// for, so that a run has no more of them than it uses.
class Mesh {
 public:
  /// @param world all ranks, in the order of @p shape; outlives this
  /// @throws InternalError when @p shape has another number of ranks
  Mesh(Collectives& world, topology::Mesh shape);
  /// All ranks share one copy of the model states.
  explicit Mesh(Collectives& world) : Mesh(world, topology::data_parallel_mesh(world.size())) {}

  topology::Mesh const& shape() const { return shape_; }
  /// All ranks.
  Collectives& world() const { return world_; }
  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }
  /// Position of this rank in its group along @p axes.
  int coordinate(topology::AxisSet axes) const { return shape_.coordinate(rank(), axes); }
  /// The ranks that read other samples than this one, and the number of this rank among them.
  int data_size() const { return shape_.data_size(); }
  int data_coordinate() const { return shape_.data_coordinate(rank()); }

  /// The group of this rank along @p axes; rank() in it is coordinate(axes). The group of all ranks
  /// is world(), and axes that name the same ranks give the same object. The first call for such
  /// axes splits world(): all ranks call in the same order, and the call blocks. Later calls are
  /// local.
  Collectives& group(topology::AxisSet axes);

 private:
  Collectives& world_;
  topology::Mesh shape_;
  std::map<topology::AxisSet, std::unique_ptr<Collectives>> groups_;  ///< by axes of the shape
};

/// @param mesh outlives the result. Collective, see Mesh::group().
std::unique_ptr<memory::AxisCommunicator> make_axis_communicator(Mesh& mesh, topology::Axis axis);

}  // namespace tessera::comm
