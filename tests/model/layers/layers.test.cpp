/// The parts of layers of one's own: every operation against finite differences, and refusals.
#include "tessera/model/layers/layers.hpp"

#include "own_layers.hpp"

namespace tessera::model {
namespace {

using test::StoredModel;
using testing::HasSubstr;
using namespace test_layers;

TEST(Parts, GradientsOfEveryOperationAreFiniteDifferences) {
  auto options = small_options();
  options.position_embedding = "positions.weight";
  options.norm = NormKind::layer;
  ComposedLm composed(std::move(options));
  composed.add_layer<EveryOperation>("layers.0").add_layer<EveryOperation>("layers.1");
  StoredModel model(std::move(composed).build(Dtype::fp32), Dtype::fp32, spread_weights());
  std::vector<std::int32_t> const tokens{1, 5, 9, 2, 0, 10, 3, 3, 7, 4};
  Batch const batch{tokens.data(), 2, 5};
  PassSettings const settings{.dropout_seed = 3, .step = 1};
  model.train(batch, settings);
  std::vector<std::vector<float>> gradients = test::gradients_of(model.params);
  std::size_t tensor = 0;
  model.params.for_each([&](int unit, std::size_t p, memory::ParameterSpec const& spec) {
    auto const& gradient = gradients[tensor++];
    auto values = model.params.weight_values(unit, p);
    for (std::size_t i = 0; i < values.size(); i += 1 + values.size() / 12) {
      constexpr float h = 1e-2f;
      double slope[2];
      for (int half = 0; half < 2; ++half) {  // Richardson: the error of both is of order h^2
        float const old = values[i], by = half ? h / 2 : h;
        double sum[2];
        for (int sign : {0, 1}) {
          values[i] = sign ? old + by : old - by;
          model.params.set_weight(unit, p, values);
          model.params.begin_step();
          sum[sign] = model.train(batch, settings);
        }
        values[i] = old;
        slope[half] = (sum[1] - sum[0]) / (2.0 * by);
      }
      model.params.set_weight(unit, p, values);
      EXPECT_NEAR(gradient[i], (4.0 * slope[1] - slope[0]) / 3.0,
                  4e-3 * (0.1 + test::largest(gradient)))
          << spec.name << ", element " << i;
    }
  });
}

template <class OwnLayer>
struct Sized final : Layer {
  explicit Sized(Parameters& p) : part(p, "part", {}) {}
  Value forward(LayerPass& pass, Value const& in) const override { return part(pass, in); }
  OwnLayer part;
};
TEST(Parts, RefuseSizesThatDoNotFit) {
  EXPECT_THAT((refusal_of_layer<Narrow>(width + 1, width)),
              HasSubstr("layers.0.part takes rows of 7 elements but gets 6"));
  EXPECT_THAT((refusal_of_layer<Narrow>(width, 0)), HasSubstr("layers.0.part: out is 0"));
  EXPECT_THAT(refusal_of_layer<Sized<Norm>>(), HasSubstr("layers.0.part: width is 0"));
  EXPECT_THAT((refusal_of_layer<Heads>(4, 4)), HasSubstr("4 heads"));
  EXPECT_THAT((refusal_of_layer<Heads>(3, 2)), HasSubstr("2 of them with keys and values"));
  EXPECT_THAT((refusal_of_layer<Heads>(3, 3, 12)), HasSubstr("more than 11 dropouts"));
}

}  // namespace
}  // namespace tessera::model
