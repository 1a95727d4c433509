#include "layers/lora_layer.hpp"

#include "family_suite.hpp"

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
    layer.add_output(pass, lease, {&out, Dtype::fp32, {1, 1}},
                     {input.data(), Dtype::fp32, {1, 64}});
    outputs.push_back(out);
  }
  EXPECT_NE(outputs[0], outputs[1]);
  EXPECT_NE(outputs[0], outputs[2]);
  EXPECT_NE(outputs[1], outputs[2]);
}

}  // namespace
