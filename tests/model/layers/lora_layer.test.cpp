#include "layers/lora_layer.hpp"

#include "family_suite.hpp"
#include "layer_case.hpp"
#include "layers/linear.hpp"

namespace {

using namespace tessera;
using namespace tessera::test;

/// Central differences of the loss along one element, under dropout: its masks are the same in
/// every pass of a step, and in recomputation.
TEST(LoraDropout, GradientsAreThoseOfTheLoss) {
  auto const cases = read_cases("lora");
  for (auto const& c : {cases[2], cases[5]}) {  // gpt2_all, llama_all
    model::ModelOptions options = options_of(c, Dtype::fp32);
    options.lora->dropout = 0.3;
    FamilyModel b(c, options);
    auto const tokens = c.tokens();
    model::Batch const batch{tokens.data(), c.rows, c.sequence};
    auto const loss = [&](std::uint64_t step) {
      return b.train(batch, {.dropout_seed = 7, .step = step, .recompute = Recompute::block});
    };
    double const dropped = loss(1);
    EXPECT_NE(dropped, loss(2)) << "other masks in another step";
    EXPECT_NE(dropped, b.evaluate(batch)) << "no dropout in an evaluation";
    b.params.begin_step();
    ASSERT_EQ(dropped, loss(1));
    std::vector<std::pair<int, std::size_t>> adapters;
    b.params.for_each([&](int unit, std::size_t p, memory::ParameterSpec const& spec) {
      if (spec.trains) adapters.emplace_back(unit, p);
    });
    ASSERT_FALSE(adapters.empty());
    for (auto const& [unit, p] : adapters) {
      auto const gradient = b.params.gradient_values(unit, p);
      auto const w = b.params.weight_values(unit, p);
      auto const at = static_cast<std::size_t>(std::max_element(gradient.begin(), gradient.end()) -
                                               gradient.begin());
      constexpr float h = 1e-2f;
      auto const moved = [&](float by) {
        auto changed = w;
        changed[at] += by;
        b.params.set_weight(unit, p, changed);
        return loss(1);
      };
      double const difference = (moved(h) - moved(-h)) / (2.0 * h);
      b.params.set_weight(unit, p, w);
      EXPECT_NEAR(gradient[at], difference, 2e-3 * largest(gradient))
          << b.params.spec(unit).parameters[p].name;
      b.params.begin_step();
      loss(1);
    }
  }
}

/// Layers of a block, and blocks, have masks of their own: with equal weights their outputs differ.
TEST(LoraDropout, EveryLayerHasItsOwnMask) {
  auto const queue = memory::make_inline_queue("compute");
  memory::Arena arena("test", memory::Purpose::activations, memory::MemorySpace::host);
  memory::UnitSpec unit;
  model::LoraOptions const options{.rank = 1, .alpha = 1.0, .dropout = 0.5};
  using model::detail::LoraLayer;
  std::vector<LoraLayer> layers;
  for (auto const place : {model::detail::LinearPlace{0, 0}, {0, 1}, {1, 0}})
    layers.emplace_back(unit, "layer", 64, 1, options, place);
  model::detail::PassContext const pass{.compute = *queue,
                                        .arena = arena,
                                        .dtype = Dtype::fp32,
                                        .batch = 1,
                                        .sequence = 1,
                                        .dropout_on = true};
  std::vector<float> input(64), ones(64, 1.0f);
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(1 << (i % 20));
  std::vector<float> outputs;
  for (auto const& layer : layers) {
    float out = 0.0f;
    std::vector<memory::ConstTensorView> views;
    for (std::size_t p = 0; p < 6; ++p)
      views.emplace_back(ones.data(), Dtype::fp32,
                         p % 2 == 0 ? std::initializer_list<std::int64_t>{1, 64}
                                    : std::initializer_list<std::int64_t>{1, 1});
    memory::WeightLease const lease(views, {});
    layer.add_output(pass, lease, {&out, Dtype::fp32, {1, 1}}, {input.data(), Dtype::fp32, {1, 64}},
                     {});
    outputs.push_back(out);
  }
  EXPECT_NE(outputs[0], outputs[1]);
  EXPECT_NE(outputs[0], outputs[2]);
  EXPECT_NE(outputs[1], outputs[2]);
}

using namespace model::detail;

constexpr std::int64_t inputs = 5, outputs = 7, rank = 2;
constexpr double scale = 1.5;

/// The parameters of an adapted layer with magnitudes, in the order of its unit.
struct Dora {
  WeightLayout layout;
  Bias bias;
  std::size_t a() const { return bias == Bias::none ? 1 : 2; }
  std::size_t magnitudes() const { return a() + 2; }

  /// The norms of the rows of W + s B A.
  std::vector<double> norms(WeightLease const& weights) const {
    auto const *w = weights[0].as<float>(), *a_values = weights[a()].as<float>(),
               *b_values = weights[a() + 1].as<float>();
    std::vector<double> out;
    for (std::int64_t o = 0; o < outputs; ++o) {
      double sum = 0.0;
      for (std::int64_t i = 0; i < inputs; ++i) {
        double v = w[layout == WeightLayout::in_out ? i * outputs + o : o * inputs + i];
        for (std::int64_t r = 0; r < rank; ++r)
          v += scale * b_values[o * rank + r] * a_values[r * inputs + i];
        sum += v * v;
      }
      out.push_back(std::sqrt(sum));
    }
    return out;
  }
};

struct DoraLayer {
  UnitSpec unit;
  Linear linear;

  DoraLayer(Dora const& dora, double dropout)
      : linear(unit, "linear",
               {.in = inputs, .out = outputs, .layout = dora.layout, .bias = dora.bias}, 0.1) {
    for (auto& parameter : unit.parameters) parameter.trains = false;
    model::LoraOptions const options{
        .rank = rank, .alpha = scale * rank, .dropout = dropout, .magnitudes = true};
    linear.adapt(unit, options, {});
  }
};

/// The forward pass keeps the norms of its first call, as gradients do: they are constants there.
model::detail::test::LayerCase dora_case(Dora const& dora, double dropout) {
  DoraLayer const layer(dora, dropout);
  auto const first = std::make_shared<std::vector<double>>();
  auto const forward = [linear = layer.linear, dora, first](PassContext const& pass,
                                                            WeightLease const& weights,
                                                            TensorView out, ConstTensorView in) {
    auto const norms = dora.norms(weights);
    if (first->empty()) *first = norms;
    std::vector<float> magnitudes(outputs);
    for (std::size_t o = 0; o < outputs; ++o)
      magnitudes[o] =
          static_cast<float>(weights[dora.magnitudes()].as<float>()[o] * norms[o] / (*first)[o]);
    std::vector<ConstTensorView> views;
    for (std::size_t p = 0; p < dora.magnitudes(); ++p) views.push_back(weights[p]);
    views.emplace_back(magnitudes.data(), Dtype::fp32,
                       std::initializer_list<std::int64_t>{outputs});
    linear.forward(pass, WeightLease(views, {}), out, in);
  };
  auto const backward = [linear = layer.linear](PassContext const& pass,
                                                BackwardLeases const& leases, TensorView din,
                                                ConstTensorView dout, ConstTensorView in) {
    linear.backward(pass, leases, din, dout, in);
  };
  return {layer.unit, {2, 3, inputs, outputs}, forward, backward};
}

TEST(DoraLayer, GradientsAreFiniteDifferencesAtConstantNorms) {
  for (auto const layout : {WeightLayout::in_out, WeightLayout::out_in})
    for (auto const bias : {Bias::none, Bias::zeros})
      for (double const dropout : {0.0, 0.4}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(layout) << ", dropout " << dropout);
        auto layer = dora_case({layout, bias}, dropout);
        if (dropout > 0.0) layer.set_dropout();
        layer.expect_gradients();
      }
}

/// y = g (W x + s B A x) + b, with g = magnitude / norm.
TEST(DoraLayer, RowsHaveTheNormsOfTheMagnitudes) {
  for (auto const layout : {WeightLayout::in_out, WeightLayout::out_in})
    for (auto const bias : {Bias::none, Bias::zeros}) {
      Dora const dora{layout, bias};
      auto layer = dora_case(dora, 0.0);
      auto const out = layer.output();
      auto const values = [&](std::size_t p) { return layer.params().weight_values(0, p); };
      auto const w = values(0), a = values(dora.a()), b = values(dora.a() + 1),
                 magnitudes = values(dora.magnitudes());
      std::vector<ConstTensorView> views;
      for (std::size_t p = 0; p <= dora.magnitudes(); ++p)
        views.emplace_back(layer.params().weight(0, p));
      auto const norms = dora.norms(WeightLease(views, {}));
      for (std::size_t row = 0; row < 6; ++row)
        for (std::size_t o = 0; o < outputs; ++o) {
          double y = 0.0;
          for (std::size_t i = 0; i < inputs; ++i) {
            double v = w[layout == WeightLayout::in_out ? i * outputs + o : o * inputs + i];
            for (std::size_t r = 0; r < rank; ++r) v += scale * b[o * rank + r] * a[r * inputs + i];
            y += v * layer.in()[row * inputs + i];
          }
          double const want =
              y * magnitudes[o] / norms[o] + (bias == Bias::none ? 0.0 : values(1)[o]);
          EXPECT_NEAR(out[row * outputs + o], want, 5e-6);
        }
    }
}

}  // namespace
