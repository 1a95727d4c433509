#pragma once
/// A pass through one layer of one's own: the forward pass records its operations, so that the
/// backward pass can run them in the reverse order.

#include <cstddef>
#include <cstdint>
#include <functional>

#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/memory/queue.hpp"
#include "tessera/memory/tensor.hpp"

namespace tessera::model {

namespace detail {
class Tape;
class TapeBackward;
struct LayerFrame;
}  // namespace detail

/// Rows of activations: [batch * sequence, columns]. It is valid during the layer's pass.
class Value {
 public:
  Value() = default;
  memory::ConstTensorView rows() const { return rows_; }
  std::int64_t columns() const { return rows_.dim(1); }

 private:
  friend class detail::Tape;
  Value(memory::ConstTensorView rows, std::size_t number) : rows_(rows), number_(number) {}
  memory::ConstTensorView rows_;
  std::size_t number_ = 0;
};

/// What the backward part of an operation gets.
class Backward {
 public:
  explicit Backward(detail::TapeBackward& run) : run_(run) {}

  memory::Queue& queue() const;
  /// The gradient of the operation's result, in its dtype.
  memory::ConstTensorView gradient() const;
  /// Where the gradient of an operand goes: to overwrite, or to add to what other operations gave.
  kernels::GradientTarget to(Value const& operand);
  /// Writes the gradient of an operand with a kernel that can only overwrite.
  void write(Value const& operand, std::function<void(memory::TensorView)> const& kernel);
  /// The gradient of the operand is that of the result.
  void pass_on(Value const& operand);

  memory::ConstTensorView weight(std::size_t parameter) const;
  /// Where the gradient of a parameter goes; the view is empty if the parameter is frozen.
  kernels::GradientTarget weight_gradient(std::size_t parameter);

  detail::TapeBackward& run() const { return run_; }  ///< for the library's layers

 private:
  detail::TapeBackward& run_;
};

/// The forward pass of one layer over a micro-batch.
class LayerPass {
 public:
  explicit LayerPass(detail::LayerFrame& frame) : frame_(frame) {}

  memory::Queue& queue() const;
  std::int64_t batch() const;
  std::int64_t sequence() const;
  /// Whether the pass generates: rows hold the new tokens only, and the older ones are in a
  /// key/value cache. An operation that looks at other positions must refuse it.
  bool is_generation() const;

  /// Rows for the result of an operation, in the dtype of matrix products.
  memory::TensorView allocate(std::int64_t columns) const;
  /// Parameter number @p parameter of the layer, as Parameters::add() has returned it.
  memory::ConstTensorView weight(std::size_t parameter) const;
  /// Ends an operation of one's own: its result, and what computes the gradients of its operands
  /// and parameters. The backward pass calls @p backward once, or never if nothing uses the result.
  Value record(memory::ConstTensorView result, std::function<void(Backward&)> backward);

  detail::LayerFrame& frame() const { return frame_; }  ///< for the library's layers

 private:
  detail::LayerFrame& frame_;
};

}  // namespace tessera::model
