/// Models of layers of one's own: Llama rebuilt of parts against transformers' figures.
#include "tessera/model/families/composed_lm.hpp"

#include "own_layers.hpp"

namespace tessera::model {
namespace {

using test::StoredCase;
using test::StoredModel;
using namespace test_layers;
using testing::HasSubstr;

struct LlamaSizes {
  std::int64_t width, inner, window;
  int heads, kv_heads, head_dim;
  double epsilon;
  bool attention_bias, mlp_bias;
};

struct LlamaLayer final : Layer {
  LlamaLayer(Parameters& p, LlamaSizes const& s)
      : attention_norm(p, "input_layernorm", {.width = s.width, .epsilon = s.epsilon}),
        attention(p, "self_attn",
                  {.width = s.width,
                   .heads = s.heads,
                   .kv_heads = s.kv_heads,
                   .head_dim = s.head_dim,
                   .window = s.window,
                   .bias = s.attention_bias}),
        mlp_norm(p, "post_attention_layernorm", {.width = s.width, .epsilon = s.epsilon}),
        mlp(p, "mlp", {.width = s.width, .inner = s.inner, .bias = s.mlp_bias}) {}

  Value forward(LayerPass& pass, Value const& in) const override {
    Value const middle = add(pass, in, attention(pass, attention_norm(pass, in)));
    return add(pass, middle, mlp(pass, mlp_norm(pass, middle)));
  }

  Norm attention_norm;
  Attention attention;
  Norm mlp_norm;
  Mlp mlp;
};

std::unique_ptr<CausalLm> llama_of_parts(ConfigTree const& config, ModelOptions const& options) {
  auto const integer = [&](char const* key) {
    return config.contains(key) && config.at(key).is_int() ? config.at(key).as_int() : 0;
  };
  LlamaSizes const sizes{integer("hidden_size"),
                         integer("intermediate_size"),
                         integer("sliding_window"),
                         static_cast<int>(integer("num_attention_heads")),
                         static_cast<int>(integer("num_key_value_heads")),
                         static_cast<int>(integer("head_dim")),
                         config.at("rms_norm_eps").as_double(),
                         config.get_bool("attention_bias", false),
                         config.get_bool("mlp_bias", false)};
  kernels::RotaryOptions rotary;
  rotary.rotary_dim = sizes.head_dim;
  ComposedLm out({.config = config,
                  .width = sizes.width,
                  .vocabulary = integer("vocab_size"),
                  .positions = integer("max_position_embeddings"),
                  .token_embedding = "model.embed_tokens.weight",
                  .rotary = rotary,
                  .final_norm = "model.norm",
                  .norm_epsilon = sizes.epsilon,
                  .tied = config.get_bool("tie_word_embeddings", false)});
  for (std::int64_t i = 0; i < integer("num_hidden_layers"); ++i)
    out.add_layer<LlamaLayer>(concat("model.layers.", i), sizes);
  return std::move(out).build(options);
}

std::vector<StoredCase> llama_cases() {
  std::vector<StoredCase> out;
  for (auto const* family : {"llama", "mistral"})
    for (auto const& c : test::family_cases(family))
      if (c.config.at("rope_parameters").at("rope_type").as_string() == "default") out.push_back(c);
  return out;
}

using LlamaOfParts = test::FamilyTest;
INSTANTIATE_TEST_SUITE_P(Stored, LlamaOfParts, testing::ValuesIn(llama_cases()),
                         [](auto const& info) { return info.param.name; });

StoredModel composed(StoredCase const& c, ModelOptions const& options = Dtype::fp32) {
  return {llama_of_parts(c.config, options), options.dtype, test::named_weights("llama")};
}

TEST_P(LlamaOfParts, MatchesTransformers) {
  auto trained = composed(GetParam());
  test::expect_training_matches(GetParam(), trained);
  test::expect_evaluation_matches(GetParam(), trained);
}

/// The prompt, then token by token.
TEST_P(LlamaOfParts, GeneratesAsTheFamily) {
  auto const& c = GetParam();
  auto const tokens = c.tokens();
  auto own = composed(c);
  test::FamilyModel family(c);
  std::vector<std::vector<float>> logits[2];
  for (StoredModel* const model : {&own, static_cast<StoredModel*>(&family)}) {
    auto& to = logits[model == &own];
    auto const cache = model->lm->make_cache(1, c.sequence, *model->queue);
    std::int32_t first = 0, count = 3;
    for (; first + count <= static_cast<std::int32_t>(c.sequence); first += count, count = 1)
      to.push_back(model->lm->decode({tokens.data() + first, 1, count, &first, &count}, *cache,
                                     model->params, *model->queue));
  }
  ASSERT_EQ(logits[0].size(), static_cast<std::size_t>(c.sequence - 2));
  for (std::size_t i = 0; i < logits[0].size(); ++i)
    EXPECT_LE(test::worst(logits[1][i], logits[0][i]), 1e-6) << "token " << i;
}

TEST_P(LlamaOfParts, RecomputesTheSameBitsInThePlannedMemory) {
  auto const& c = GetParam();
  auto const tokens = c.tokens();
  Batch const batch{tokens.data(), c.rows, c.sequence};
  auto kept = composed(c), recomputed = composed(c);
  auto const held = [] {
    return memory::MemoryTracker::of_process().current(memory::Purpose::activations);
  };
  for (auto* const model : {&kept, &recomputed}) {
    auto const recompute = model == &recomputed ? Recompute::block : Recompute::none;
    model->lm->reserve_activations(
        model->lm->activation_bytes({memory::Pass::training, c.rows, c.sequence, recompute},
                                    memory::MemorySpace::host),
        *model->queue);
    auto const reserved = held();
    model->train(batch, {.recompute = recompute});
    EXPECT_EQ(held(), reserved);
  }
  EXPECT_THROW(kept.train(batch, {.recompute = Recompute::light}), ConfigError);
  auto const once = test::gradients_of(kept.params);
  EXPECT_EQ(once, test::gradients_of(recomputed.params));
  kept.train(batch, {});
  auto const twice = test::gradients_of(kept.params);
  for (std::size_t t = 0; t < once.size(); ++t)
    for (std::size_t i = 0; i < once[t].size(); ++i)
      ASSERT_NEAR(twice[t][i], 2.0f * once[t][i], 2e-6 * test::largest(twice[t]));
}

/// In 16 bits, and under autocast, where values have two dtypes: as far from fp32 as the family is.
TEST_P(LlamaOfParts, RoundsAsTheFamilyDoes) {
  auto const& c = GetParam();
  auto const tokens = c.tokens();
  Batch const batch{tokens.data(), c.rows, c.sequence};
  for (ModelOptions const& options :
       {ModelOptions(Dtype::bf16), ModelOptions(Dtype::fp32, Dtype::bf16)}) {
    auto own = composed(c, options);
    test::FamilyModel family(c, options);
    double const loss = family.train(batch, {});
    EXPECT_NEAR(own.train(batch, {}), loss, 5e-3 * loss);
    own.params.for_each([&](int unit, std::size_t p, memory::ParameterSpec const& spec) {
      EXPECT_LE(
          test::worst(own.params.gradient_values(unit, p), family.params.gradient_values(unit, p)),
          0.06)
          << spec.name;
    });
  }
}

/// Layer whose output is its input.
struct Identity final : Layer {
  explicit Identity(Parameters& p) : spare(p, "spare", {.width = width}) {}
  Value forward(LayerPass&, Value const& in) const override { return in; }
  Norm spare;
};

struct NoParameters final : Layer {
  explicit NoParameters(Parameters&) {}
  Value forward(LayerPass&, Value const& in) const override { return in; }
};

TEST(ComposedLm, RefusesWhatDoesNotFitByName) {
  EXPECT_THAT(refusal_of_layer<Identity>(),
              HasSubstr("layers.0.spare.weight has no part in the result"));
  EXPECT_THAT((refusal_of_layer<Narrow>(width, 4)),
              HasSubstr("layer layers.0 returns 2 rows of 4; it must return 2 rows of 6"));
  EXPECT_THAT(refusal_of_layer<NoParameters>(), HasSubstr("has no parameters"));
  EXPECT_THAT(refusal([&] {
                ComposedLm lm(small_options());
                lm.add_layer<Narrow>("a", width, width).add_layer<Narrow>("a", width, width);
                std::move(lm).build(Dtype::fp32);
              }),
              HasSubstr("two parameters are called a.part.bias"));
  EXPECT_THAT(refusal([&] {
                ModelOptions adapted = Dtype::fp32;
                adapted.lora.emplace();
                ComposedLm lm(small_options());
                lm.add_layer<Narrow>("a", width, width);
                std::move(lm).build(adapted);
              }),
              HasSubstr("adapters are for the library's families"));
  auto options = small_options();
  options.config = ConfigTree::object();
  EXPECT_THAT(refusal([&] { ComposedLm lm(options); }), HasSubstr("no model_type"));
  options = small_options();
  options.vocabulary = 0;
  EXPECT_THAT(refusal([&] { ComposedLm lm(options); }),
              HasSubstr("vocabulary of the composed model"));
}

/// A frozen parameter needs no gradient; the frozen layers below the first trained one neither.
TEST(ComposedLm, FreezesByPattern) {
  ModelOptions options = Dtype::fp32;
  options.frozen_parameters = ".*spare.*|.*gain";
  ComposedLm lm(small_options());
  lm.add_layer<EveryOperation>("layers.0")
      .add_layer<Identity>("layers.1")
      .add_layer<Narrow>("layers.2", width, width);
  StoredModel model(std::move(lm).build(options), Dtype::fp32, spread_weights());
  std::vector<std::int32_t> const tokens{1, 5, 9, 2};
  EXPECT_GT(model.train({tokens.data(), 1, 4}, {}), 0.0);
  EXPECT_EQ(model.lm->family(), "own");
  EXPECT_EQ(model.lm->config().at("dtype").as_string(), "float32");
}

TEST(ComposedLm, GeneratesWithOneShapeOfKeysAndValuesOnly) {
  auto const queue = memory::make_inline_queue("compute");
  for (bool const equal : {true, false}) {
    ComposedLm lm(small_options());
    lm.add_layer<Heads>("a", 2, 2).add_layer<Heads>("b", equal ? 2 : 3, equal ? 2 : 1);
    auto const model = std::move(lm).build(Dtype::fp32);
    auto const said = refusal([&] { model->make_cache(1, 3, *queue); });
    EXPECT_THAT(said, HasSubstr(equal ? "nothing was thrown" : "generates no text"));
  }
  ComposedLm lm(small_options());
  lm.add_layer<Narrow>("a", width, width);
  auto const model = std::move(lm).build(Dtype::fp32);
  EXPECT_THAT(refusal([&] { model->make_cache(1, 3, *queue); }), HasSubstr("has no Attention"));
}

}  // namespace
}  // namespace tessera::model
