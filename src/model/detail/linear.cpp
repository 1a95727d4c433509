#include "detail/linear.hpp"

#include "tessera/kernels/column_sums.hpp"
#include "tessera/kernels/gemm.hpp"

namespace tessera::model::detail {

Linear::Linear(UnitSpec& unit, std::string const& name, LinearShape shape, double stddev)
    : name_(name), shape_(shape) {
  bool const in_out = shape.layout == WeightLayout::in_out;
  weight_ =
      add_parameter(unit, name + ".weight",
                    {in_out ? shape.in : shape.out, in_out ? shape.out : shape.in}, normal(stddev));
  if (shape.bias == Bias::zeros)
    bias_ = add_undecayed_parameter(unit, name + ".bias", {shape.out}, zeros());
}

void Linear::forward(PassContext const& pass, WeightLease const& weights, TensorView out,
                     ConstTensorView in, TensorView gelu_input) const {
  TESSERA_EXPECT(!lora_ || gelu_input.empty(), name_);
  ArenaScope const scope(pass.arena);
  ConstTensorView const bias = shape_.bias == Bias::none ? ConstTensorView{} : weights[bias_];
  kernels::gemm(pass.compute, {.transpose_b = shape_.layout == WeightLayout::out_in}, out,
                pass.in_dtype(pass.dtype, in), pass.in_dtype(pass.dtype, weights[weight_]),
                {.bias = pass.in_dtype(pass.dtype, bias), .gelu_input = gelu_input});
  if (lora_) lora_->add_output(pass, weights, out, in);
}

void Linear::backward(PassContext const& pass, BackwardLeases const& leases, InputGradient din,
                      ConstTensorView dout, ConstTensorView in) const {
  ArenaScope const conversions(pass.arena);
  dout = pass.in_dtype(pass.dtype, dout);
  in = pass.in_dtype(pass.dtype, in);
  bool const in_out = shape_.layout == WeightLayout::in_out;
  if (!leases.gradients[weight_].empty())
    kernels::gemm(pass.compute, {.transpose_a = true, .accumulate = leases.gradients.accumulate()},
                  leases.gradients[weight_], in_out ? in : dout, in_out ? dout : in);
  if (shape_.bias != Bias::none && !leases.gradients[bias_].empty()) {
    ArenaScope const scope(pass.arena);
    TensorView const workspace =
        pass.allocate_fp32(kernels::bias_gradient_workspace(pass.compute, dout.dim(0), shape_.out));
    kernels::bias_gradient(pass.compute, leases.gradient(bias_), dout, workspace);
  }
  if (!din.out.empty())
    kernels::gemm(pass.compute,
                  {.transpose_b = in_out, .accumulate = din.mode == kernels::WriteMode::add},
                  din.out, dout, pass.in_dtype(pass.dtype, leases.weights[weight_]),
                  {.gelu_slope_at = din.gelu_input});
  TESSERA_EXPECT(!lora_ || din.gelu_input.empty(), name_);
  if (lora_) lora_->backward(pass, leases, din.out, dout, in);
}

}  // namespace tessera::model::detail
