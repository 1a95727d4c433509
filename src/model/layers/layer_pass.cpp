#include "tessera/model/layers/layer_pass.hpp"

#include "layers/tape.hpp"

namespace tessera::model {

memory::Queue& Backward::queue() const { return run_.pass().compute; }
memory::ConstTensorView Backward::gradient() const { return run_.gradient(); }
kernels::GradientTarget Backward::to(Value const& operand) { return run_.to(operand); }
void Backward::write(Value const& operand, std::function<void(memory::TensorView)> const& kernel) {
  run_.write(operand, operand.rows().dtype(), kernel);
}
void Backward::pass_on(Value const& operand) { run_.pass_on(operand); }
memory::ConstTensorView Backward::weight(std::size_t parameter) const {
  return run_.weight(parameter);
}
kernels::GradientTarget Backward::weight_gradient(std::size_t parameter) {
  return run_.leases({parameter, parameter + 1}).gradient(parameter);
}

memory::Queue& LayerPass::queue() const { return frame_.pass.compute; }
std::int64_t LayerPass::batch() const { return frame_.pass.batch; }
std::int64_t LayerPass::sequence() const { return frame_.pass.sequence; }
bool LayerPass::is_generation() const { return frame_.pass.cache != nullptr; }
memory::TensorView LayerPass::allocate(std::int64_t columns) const {
  return frame_.pass.allocate(frame_.pass.positions(), columns);
}
memory::ConstTensorView LayerPass::weight(std::size_t parameter) const {
  return frame_.weights[parameter];
}
Value LayerPass::record(memory::ConstTensorView result, std::function<void(Backward&)> backward) {
  return frame_.tape.record(result, std::move(backward));
}

}  // namespace tessera::model
