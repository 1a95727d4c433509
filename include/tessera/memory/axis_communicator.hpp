#pragma once
/// How the layers of a model exchange tensors with other ranks, without knowing the transport.
///
/// Parallelism inside a layer (parts of a sequence, experts) needs communication between the
/// kernels of a forward or backward pass. A layer that communicates is given an AxisCommunicator
/// when it is made, next to the ParamProvider of each pass. Implementation:
/// comm/compose/mesh.hpp.

#include "tessera/memory/queue.hpp"
#include "tessera/memory/tensor.hpp"

namespace tessera::memory {

/// The ranks along one axis of the mesh, which call the same operations in the same order.
///
/// An operation starts after the work enqueued on the queue so far, and work enqueued later starts
/// after the operation. Tensors are contiguous, in the memory space of the queue and unchanged by
/// others until then. On an axis of one rank every operation is a copy or does nothing.
class AxisCommunicator {
 public:
  virtual ~AxisCommunicator() = default;
  /// Coordinate of this rank along the axis.
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Sums over the ranks in place, with equal bits on each.
  virtual void all_reduce(TensorView data, Queue& queue) = 0;
  /// out = the inputs of all ranks, one after the other. @pre out has size() times the elements
  virtual void all_gather(ConstTensorView in, TensorView out, Queue& queue) = 0;
  /// out = this rank's part of the sum over the ranks. @pre in has size() times the elements
  virtual void reduce_scatter(TensorView in, TensorView out, Queue& queue) = 0;
  /// Part q of @p in goes to rank q; part q of @p out comes from rank q. Parts have equal sizes.
  virtual void all_to_all(ConstTensorView in, TensorView out, Queue& queue) = 0;
};

}  // namespace tessera::memory
