#include "layers/embedding.hpp"

#include "layer_case.hpp"

namespace tessera::model::detail::test {
namespace {

/// The layer's input are tokens, so that the loss does not depend on the rows of `in`.
LayerCase make(double dropout, std::string const& positions = "wpe", double scale = 1.0,
               std::vector<std::int32_t> position_ids = {}, std::int64_t padding_id = -1) {
  UnitSpec unit;
  Embedding const embedding(unit, {.token_name = "wte",
                                   .position_name = positions,
                                   .token_aliases = {"lm_head.weight"},
                                   .vocabulary = 5,
                                   .positions = 4,
                                   .width = 6,
                                   .dropout = dropout,
                                   .padding_id = padding_id,
                                   .scale = scale});
  auto const tokens = std::make_shared<std::vector<std::int32_t>>(
      std::vector<std::int32_t>{3, 0, 3, 1, 3, 3});  // token 2 and 4, position 3 do not occur
  auto const ids = std::make_shared<std::vector<std::int32_t>>(std::move(position_ids));
  auto const with_ids = [ids](PassContext pass) {
    if (!ids->empty()) pass.position_ids = TensorView(ids->data(), Dtype::int32, {2, 3});
    return pass;
  };
  auto const view = [tokens] { return TensorView(tokens->data(), Dtype::int32, {2, 3}); };
  return {unit,
          {2, 3, 1, 6},
          [=](PassContext const& pass, WeightLease const& weights, TensorView out,
              ConstTensorView) { embedding.forward(with_ids(pass), weights, out, view()); },
          [=](PassContext const& pass, BackwardLeases const& leases, TensorView din,
              ConstTensorView dout, ConstTensorView) {
            kernels::fill(pass.compute, din, 0.0f);
            embedding.backward(with_ids(pass), leases.gradients, {dout, view(), {}, {}});
          }};
}

TEST(Embedding, GradientsAreFiniteDifferences) { make(0.0).expect_gradients(); }

TEST(Embedding, GradientsOfPositionsThatRestart) {
  make(0.0, "wpe", 1.0, {0, 1, 0, 0, 0, 3}).expect_gradients();
}

TEST(Embedding, GradientsWithoutPositionsAndWithAScale) {
  make(0.0, "").expect_gradients();
  make(0.0, "", 3.5).expect_gradients();
}

TEST(Embedding, GradientsWithDropout) {
  LayerCase layer = make(0.4);
  layer.set_dropout();
  layer.expect_gradients();
}

/// nn.Embedding(padding_idx): the row is read and has no gradient.
TEST(Embedding, ThePaddingRowHasNoGradient) {
  constexpr std::size_t width = 6, padding = 3;
  LayerCase all = make(0.0), padded = make(0.0, "wpe", 1.0, {}, padding);
  EXPECT_EQ(all.output(), padded.output());
  for (int const pass : {1, 2}) {
    auto const expected = all.gradient_of(0), found = padded.gradient_of(0);
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_EQ(found[i], i / width == padding ? 0.0f : expected[i]) << pass << ", element " << i;
    EXPECT_NE(expected[padding * width], 0.0f);
  }
}

TEST(Embedding, NamesItsTablesAndTheTiedHead) {
  LayerCase layer = make(0.0);
  auto const& parameters = layer.params().spec(0).parameters;
  ASSERT_EQ(parameters.size(), 2u);
  EXPECT_EQ(parameters[0].aliases, std::vector<std::string>{"lm_head.weight"});
  EXPECT_EQ(parameters[1].name, "wpe");
}

}  // namespace
}  // namespace tessera::model::detail::test
