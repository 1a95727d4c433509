#include "tessera/comm/compose/mesh.hpp"

#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/memory/device.hpp"

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

namespace {

using memory::ConstTensorView;
using memory::Queue;
using memory::TensorView;

class GroupCommunicator final : public memory::AxisCommunicator {
 public:
  explicit GroupCommunicator(Collectives& group) : group_(group) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }

  void all_reduce(TensorView data, Queue& queue) override {
    order(group_.all_reduce(data, ReduceOp::sum, queue.record()), queue);
  }
  void all_gather(ConstTensorView in, TensorView out, Queue& queue) override {
    expect_parts("all_gather", out.numel(), in.numel());
    order(group_.all_gather(in, out, {in.numel(), in.numel(), 0}, queue.record()), queue);
  }
  void reduce_scatter(TensorView in, TensorView out, Queue& queue) override {
    expect_parts("reduce_scatter", in.numel(), out.numel());
    order(group_.reduce_scatter(in, {out.numel(), out.numel(), 0}, out,
                                memory::WriteMode::overwrite, queue.record()),
          queue);
  }
  void all_to_all(ConstTensorView in, TensorView out, Queue& queue) override {
    order(group_.all_to_all(in, out, queue.record()), queue);
  }

 private:
  /// An inline queue executes work in the call, so that the host waits here, with the deadline of
  /// the group.
  void order(Pending const& pending, Queue& queue) {
    if (memory::memory_space_of(queue) == memory::MemorySpace::host) return group_.wait(pending);
    pending.order_before(queue);
  }
  void expect_parts(char const* operation, std::int64_t all, std::int64_t part) const {
    TESSERA_VALIDATE(all == part * size(), InternalError, operation, " of ", part,
                     " elements per rank and ", all, " of ", size(), " ranks");
  }

  Collectives& group_;
};

}  // namespace

std::unique_ptr<memory::AxisCommunicator> make_axis_communicator(Mesh& mesh, topology::Axis axis) {
  return std::make_unique<GroupCommunicator>(mesh.group(axis));
}

}  // namespace tessera::comm
