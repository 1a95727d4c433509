#include "layers/qkv_projection.hpp"

#include "layer_case.hpp"
#include "tessera/kernels/attention/attention.hpp"

namespace tessera::model::detail::test {
namespace {

constexpr std::int64_t width = 5;
constexpr int heads = 2, head_dim = 3;
constexpr std::int64_t aligned_width = 16;  ///< its matrices fill cache lines: they are adjacent

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
    for (auto const& [view, count] : {std::pair(operands.query, o.heads),
                                      {operands.key, o.kv_heads},
                                      {operands.value, o.kv_heads}})
      for (std::int64_t h = 0; h < count; ++h)
        for (std::int64_t c = 0; c < head_dim; ++c, ++at) {
          std::int64_t const stride = view.head_stride == 0 ? head_dim : view.head_stride;
          float& element = static_cast<float*>(view.base)[row * view.row_stride + h * stride + c];
          (scatter ? element : all[at]) = scatter ? all[at] : element;
        }
}

LayerCase make(QkvOptions const& o) {
  UnitSpec unit;
  QkvProjection const projection(unit, "attn", o);
  return {unit,
          {2, 3, o.width, o.query_width() + 2 * o.kv_width()},
          [projection, o](PassContext const& pass, WeightLease const& weights, TensorView out,
                          ConstTensorView in) {
            auto const rows = projection.allocate(pass, weights);
            EXPECT_EQ(rows.fused.empty(), o.layout == QkvLayout::separate && o.width == width);
            projection.forward(pass, weights, rows, in);
            gather(projection, o, rows, out.as<float>(), false);
          },
          [projection, o](PassContext const& pass, BackwardLeases const& leases, TensorView din,
                          ConstTensorView dout, ConstTensorView in) {
            auto const rows = projection.allocate(pass, leases.weights);
            std::vector<float> all(dout.as<float>(), dout.as<float>() + dout.numel());
            gather(projection, o, rows, all.data(), true);
            projection.backward(pass, leases, din, rows, in);
          }};
}

TEST(QkvProjection, GradientsAreFiniteDifferences) {
  make(options(QkvLayout::fused, heads)).expect_gradients();
  make(options(QkvLayout::fused, 1)).expect_gradients();
  make(options(QkvLayout::fused_per_head, heads)).expect_gradients();
  make(options(QkvLayout::separate, heads)).expect_gradients();
  make(options(QkvLayout::separate, 1)).expect_gradients();
}

/// Three matrices that are next to each other are one product; with biases between them they are
/// not.
TEST(QkvProjection, OfMatricesNextToEachOtherIsOneProduct) {
  for (int const kv_heads : {heads, 1}) {
    QkvOptions o = options(QkvLayout::separate, kv_heads);
    o.width = aligned_width;
    o.bias = Bias::none;
    make(o).expect_gradients();
  }
}

/// Column c of query, key or value of head h is row (3 h + part) * head_dim + c of the matrix.
TEST(QkvProjection, OfOneMatrixPerHeadPutsTheHeadsTogether) {
  LayerCase layer = make(options(QkvLayout::fused_per_head, heads));
  auto const out = layer.output(), weight = layer.params().weight_values(0, 0),
             bias = layer.params().weight_values(0, 1);
  std::size_t at = 0;
  for (std::size_t row = 0; row < 6; ++row)
    for (std::size_t part = 0; part < 3; ++part)
      for (std::size_t h = 0; h < heads; ++h)
        for (std::size_t c = 0; c < head_dim; ++c, ++at) {
          std::size_t const of = (3 * h + part) * head_dim + c;
          double want = bias[of];
          for (std::size_t i = 0; i < width; ++i)
            want += static_cast<double>(layer.in()[row * width + i]) * weight[of * width + i];
          EXPECT_NEAR(out[at], want, 1e-6) << row << ", " << part << ", " << h << ", " << c;
        }
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
