#include "tessera/comm/compose/mesh.hpp"

#include <utility>

#include "tessera/core/error.hpp"

namespace tessera::comm {

Mesh::Mesh(Collectives& world, topology::Mesh shape) : world_(world), shape_(std::move(shape)) {
  TESSERA_VALIDATE(shape_.size() == world.size(), InternalError, "a mesh ", describe(shape_),
                   " on ", world.size(), " ranks");
}

Collectives& Mesh::group(topology::AxisSet axes) {
  if (shape_.size(axes) == size()) return world_;
  topology::AxisSet present;
  for (auto const& along : shape_.sizes())
    if (axes.contains(along.axis)) present = present | along.axis;
  auto& made = groups_[present];
  if (!made) made = world_.split(shape_.group(present, rank()));
  return *made;
}

}  // namespace tessera::comm
