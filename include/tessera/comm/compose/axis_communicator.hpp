#pragma once
/// The communication of layers along an axis of the mesh.

#include <memory>

#include "tessera/comm/compose/mesh.hpp"
#include "tessera/memory/axis_communicator.hpp"

namespace tessera::comm {

/// @param mesh outlives the result. Collective, see Mesh::group().
std::unique_ptr<memory::AxisCommunicator> make_axis_communicator(Mesh& mesh, topology::Axis axis);

}  // namespace tessera::comm
