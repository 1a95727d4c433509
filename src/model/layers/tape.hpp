#pragma once
/// The operations of one layer in the order of its forward pass, and the run of their backward
/// parts in the reverse order (reverse-mode differentiation; Linnainmaa, BIT 16 (1976)).

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layers/pass.hpp"
#include "tessera/model/layers/layer_pass.hpp"

namespace tessera::model::detail {

/// Parameters [begin, end) of a unit: those of one part of a layer.
struct ParameterRange {
  std::size_t begin = 0, end = 0;
};

class Tape {
 public:
  struct Operation {
    Value result;
    std::function<void(Backward&)> backward;
  };

  /// The first value is the layer's input.
  Value add(ConstTensorView rows) { return {rows, values_++}; }
  Value record(ConstTensorView rows, std::function<void(Backward&)> backward) {
    operations_.push_back({add(rows), std::move(backward)});
    return operations_.back().result;
  }
  std::vector<Operation> const& operations() const { return operations_; }
  std::size_t values() const { return values_; }
  static std::size_t number(Value const& value) { return value.number_; }

 private:
  std::vector<Operation> operations_;
  std::size_t values_ = 0;
};

/// What a LayerPass has.
struct LayerFrame {
  PassContext const& pass;
  WeightLease const& weights;
  Tape& tape;
  int layer = 0;
  std::string const& name;
  int dropouts = 0;  ///< operations with dropout so far
};

/// The backward run of a tape. Gradients of values stay in the arena until the layer's end.
class TapeBackward {
 public:
  TapeBackward(PassContext const& pass, BackwardLeases const& leases, Tape const& tape)
      : pass_(pass),
        leases_(leases),
        gradients_(tape.values()),
        is_written_(leases.weights.size(), false) {}

  /// @p stream holds the gradient of @p out and receives that of @p in.
  void run(Tape const& tape, Value const& in, Value const& out, TensorView stream);
  /// The first parameter that trains and has got no gradient; their number if there is none.
  std::size_t first_unwritten() const;

  PassContext const& pass() const { return pass_; }
  ConstTensorView weight(std::size_t parameter) const { return leases_.weights[parameter]; }
  ConstTensorView gradient() const { return *current_; }
  /// The gradient of the result in another dtype.
  ConstTensorView gradient_in(Dtype dtype) const { return pass_.in_dtype(dtype, *current_); }
  kernels::GradientTarget to(Value const& operand);
  /// Calls @p kernel with rows of @p dtype to overwrite.
  void write(Value const& operand, Dtype dtype, std::function<void(TensorView)> const& kernel);
  /// Takes over @p rows as the gradient, or adds them to it.
  void give(Value const& operand, TensorView rows) {
    give(operand, std::make_shared<TensorView>(rows));
  }
  void pass_on(Value const& operand) { give(operand, current_); }
  /// Leases of a part's parameters, which add where the part has been used before.
  BackwardLeases leases(ParameterRange range);

 private:
  using Rows = std::shared_ptr<TensorView>;
  Rows allocate(ConstTensorView like) const {
    return std::make_shared<TensorView>(
        pass_.arena.allocate(like.dtype(), {like.dim(0), like.dim(1)}));
  }
  void give(Value const& operand, Rows const& rows);
  Rows& gradient_of(Value const& value) { return gradients_[Tape::number(value)]; }

  PassContext const& pass_;
  BackwardLeases const& leases_;
  /// Gradient of each value; null: none yet. Values whose gradients are equal share rows, which are
  /// copied before one of them changes.
  std::vector<Rows> gradients_;
  Rows current_;  ///< gradient of the operation's result
  std::vector<bool> is_written_;
  std::optional<GradientLease> adding_;
};

}  // namespace tessera::model::detail
