#include "detail/qkv_projection.hpp"

#include "layer_case.hpp"
#include "tessera/kernels/attention_backward.hpp"

namespace tessera::model::detail::test {
namespace {

constexpr std::int64_t width = 5;
constexpr int heads = 2, head_dim = 3;

QkvOptions options(QkvLayout layout, int kv_heads) {
  std::vector<std::string> names{"qkv"};
  if (layout == QkvLayout::separate) names = {"q", "k", "v"};
  return {.width = width,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .layout = layout,
          .weights = WeightLayout::out_in,
          .names = std::move(names)};
}

/// Rows of query, key and value behind one another, by the operands of attention.
void gather(QkvProjection const& projection, QkvOptions const& o, QkvProjection::Rows const& rows,
            float* all, bool scatter) {
  auto const operands = projection.heads<kernels::AttentionGradients>(rows);
  std::int64_t at = 0;
  for (std::int64_t row = 0; row < 6; ++row)
    for (auto const& [view, columns] : {std::pair(operands.query, o.query_width()),
                                        {operands.key, o.kv_width()},
                                        {operands.value, o.kv_width()}})
      for (std::int64_t c = 0; c < columns; ++c, ++at) {
        float& element = static_cast<float*>(view.base)[row * view.row_stride + c];
        (scatter ? element : all[at]) = scatter ? all[at] : element;
      }
}

LayerCase make(QkvOptions const& o) {
  UnitSpec unit;
  QkvProjection const projection(unit, "attn", o);
  return {unit,
          {2, 3, width, o.query_width() + 2 * o.kv_width()},
          [projection, o](PassContext const& pass, WeightLease const& weights, TensorView out,
                          ConstTensorView in) {
            auto const rows = projection.allocate(pass);
            projection.forward(pass, weights, rows, in);
            gather(projection, o, rows, out.as<float>(), false);
          },
          [projection, o](PassContext const& pass, BackwardLeases const& leases, TensorView din,
                          ConstTensorView dout, ConstTensorView in) {
            auto const rows = projection.allocate(pass);
            std::vector<float> all(dout.as<float>(), dout.as<float>() + dout.numel());
            gather(projection, o, rows, all.data(), true);
            projection.backward(pass, leases, din, rows, in);
          }};
}

TEST(QkvProjection, GradientsAreFiniteDifferences) {
  make(options(QkvLayout::fused, heads)).expect_gradients();
  make(options(QkvLayout::fused, 1)).expect_gradients();
  make(options(QkvLayout::separate, heads)).expect_gradients();
  make(options(QkvLayout::separate, 1)).expect_gradients();
}

TEST(QkvProjection, NamesItsMatrices) {
  UnitSpec unit;
  QkvProjection const separate(unit, "attn", options(QkvLayout::separate, 1));
  ASSERT_EQ(unit.parameters.size(), 6u);
  EXPECT_EQ(unit.parameters[2].name, "attn.k.weight");
  EXPECT_EQ(unit.parameters[2].shape, (std::vector<std::int64_t>{3, 5}));
  EXPECT_EQ(unit.parameters[5].name, "attn.v.bias");
}

}  // namespace
}  // namespace tessera::model::detail::test
