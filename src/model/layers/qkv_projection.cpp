#include "layers/qkv_projection.hpp"

namespace tessera::model::detail {

QkvProjection::QkvProjection(UnitSpec& unit, std::string const& name, QkvOptions const& options)
    : options_(options) {
  auto const add = [&](std::size_t i, std::int64_t out) {
    parts_.emplace_back(
        unit, name + "." + options.names.at(i),
        LinearShape{
            .in = options.width, .out = out, .layout = options.weights, .bias = options.bias},
        options.stddev);
  };
  TESSERA_EXPECT(options.layout != QkvLayout::fused_per_head || options.heads == options.kv_heads);
  if (options.layout != QkvLayout::separate) {
    add(0, fused_width());
    return;
  }
  add(0, options.query_width());
  add(1, options.kv_width());
  add(2, options.kv_width());
  joined_ = Linear::join(parts());
}

QkvProjection::Rows QkvProjection::allocate(PassContext const& pass,
                                            WeightLease const& weights) const {
  std::int64_t const rows = pass.positions();
  Rows out;
  if (options_.layout != QkvLayout::separate || Linear::is_one_product(joined_, weights, parts())) {
    out.fused = pass.allocate(rows, fused_width());
    return out;
  }
  out.query = pass.allocate(rows, options_.query_width());
  out.key = pass.allocate(rows, options_.kv_width());
  out.value = pass.allocate(rows, options_.kv_width());
  return out;
}

void QkvProjection::forward(PassContext const& pass, WeightLease const& weights, Rows const& rows,
                            ConstTensorView in) const {
  if (!rows.fused.empty()) return fused().forward(pass, weights, rows.fused, in);
  ArenaScope const scope(pass.arena);
  LinearInput const of_all = parts_[0].forward_input(pass, in);
  parts_[0].forward(pass, weights, rows.query, of_all);
  parts_[1].forward(pass, weights, rows.key, of_all);
  parts_[2].forward(pass, weights, rows.value, of_all);
}

void QkvProjection::backward(PassContext const& pass, BackwardLeases const& leases, TensorView din,
                             Rows const& drows, ConstTensorView in) const {
  if (!drows.fused.empty()) return fused().backward(pass, leases, din, drows.fused, in);
  kernels::GradientTarget const sum{din, kernels::WriteMode::add};
  ArenaScope const scope(pass.arena);
  LinearInput const of_all = parts_[0].backward_input(pass, leases, in);
  parts_[0].backward(pass, leases, din, drows.query, of_all);
  parts_[1].backward(pass, leases, sum, drows.key, of_all);
  parts_[2].backward(pass, leases, sum, drows.value, of_all);
}

}  // namespace tessera::model::detail
