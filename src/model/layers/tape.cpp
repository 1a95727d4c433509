#include "layers/tape.hpp"

#include "tessera/kernels/elementwise/elementwise.hpp"

namespace tessera::model::detail {
namespace {

/// Returns a lease of these buffers that adds to the gradients in them.
GradientLease to_add(GradientLease const& lease, std::size_t parameters) {
  std::vector<TensorView> views;
  for (std::size_t i = 0; i < parameters; ++i) views.push_back(lease[i]);
  return {std::move(views), memory::WriteMode::add};
}

}  // namespace

kernels::GradientTarget TapeBackward::to(Value const& operand) {
  Rows& rows = gradient_of(operand);
  if (!rows) {
    rows = allocate(operand.rows());
    return {*rows, kernels::WriteMode::overwrite};
  }
  if (rows.use_count() > 1) {
    Rows const own = allocate(*rows);
    kernels::cast(pass_.compute, *own, *rows);
    rows = own;
  }
  return {*rows, kernels::WriteMode::add};
}

void TapeBackward::write(Value const& operand, Dtype dtype,
                         std::function<void(TensorView)> const& kernel) {
  auto const target = to(operand);
  bool const adds = target.mode == kernels::WriteMode::add;
  if (!adds && target.view.dtype() == dtype) return kernel(target.view);
  ArenaScope const scope(pass_.arena);
  TensorView const rows = pass_.arena.allocate(dtype, {target.view.dim(0), target.view.dim(1)});
  kernel(rows);
  if (adds)
    kernels::add(pass_.compute, target.view, rows);
  else
    kernels::cast(pass_.compute, target.view, rows);
}

void TapeBackward::give(Value const& operand, Rows const& rows) {
  if (!gradient_of(operand) && rows->dtype() == operand.rows().dtype()) {
    gradient_of(operand) = rows;
    return;
  }
  auto const target = to(operand);
  if (target.mode == kernels::WriteMode::add)
    kernels::add(pass_.compute, target.view, *rows);
  else
    kernels::cast(pass_.compute, target.view, *rows);
}

BackwardLeases TapeBackward::leases(ParameterRange range) {
  bool was_used = false;
  for (std::size_t i = range.begin; i < range.end; ++i) {
    was_used = was_used || is_written_[i];
    is_written_[i] = true;
  }
  if (!was_used || leases_.gradients.accumulate()) return leases_;
  if (!adding_) adding_.emplace(to_add(leases_.gradients, is_written_.size()));
  return {leases_.weights, *adding_};
}

std::size_t TapeBackward::first_unwritten() const {
  std::size_t i = 0;
  while (i < is_written_.size() && (is_written_[i] || leases_.gradients[i].empty())) ++i;
  return i;
}

void TapeBackward::run(Tape const& tape, Value const& in, Value const& out, TensorView stream) {
  if (Tape::number(in) == Tape::number(out)) return;
  gradient_of(out) = std::make_shared<TensorView>(stream);
  auto const& operations = tape.operations();
  for (auto operation = operations.rbegin(); operation != operations.rend(); ++operation) {
    current_ = std::move(gradient_of(operation->result));
    if (!current_) continue;
    Backward backward(*this);
    operation->backward(backward);
    current_.reset();
  }
  Rows const& rows = gradient_of(in);
  if (!rows)
    kernels::fill(pass_.compute, stream, 0.0f);
  else if (rows->data() != stream.data())
    kernels::cast(pass_.compute, stream, *rows);
}

}  // namespace tessera::model::detail
