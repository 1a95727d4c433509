#include "layers/float8_operand.hpp"

#include "tessera/kernels/gemm/float8.hpp"

namespace tessera::model::detail {

Float8Operand to_float8(PassContext const& pass, Float8 format, ConstTensorView in,
                        Float8Forms forms) {
  std::int64_t const rows = in.dim(0), columns = in.dim(1);
  kernels::Float8Scale const scale{pass.allocate_fp32(kernels::Float8Scale::numel)};
  kernels::Float8Copies copies;
  if (forms.rows) copies.rows = pass.arena.allocate(Dtype::uint8, {rows, columns});
  if (forms.transposed)
    copies.transposed = pass.arena.allocate(Dtype::uint8, {columns, kernels::float8_padded(rows)});
  {
    ArenaScope const scope(pass.arena);
    kernels::float8_scale(pass.compute, scale, format, in,
                          pass.allocate_fp32(kernels::float8_scale_workspace(in.numel())));
  }
  kernels::float8_cast(pass.compute, format, copies, in, scale);
  kernels::Float8Factor const factor{format, scale.reciprocal()};
  return {{copies.rows, factor}, {copies.transposed, factor}};
}

void multiply(PassContext const& pass, kernels::GradientTarget const& c, Float8Matrix const& a,
              Float8Matrix const& b, kernels::GemmEpilogue const& then) {
  kernels::gemm(pass.compute,
                {.transpose_b = true,
                 .accumulate = c.mode == kernels::WriteMode::add,
                 .fp8_a = a.factor,
                 .fp8_b = b.factor},
                c.view, a.values, b.values, then);
}

}  // namespace tessera::model::detail
