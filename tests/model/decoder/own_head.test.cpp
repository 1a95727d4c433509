/// Decoders with a head for sequence classification: tests/oracles/classification.py.
#include "family_suite.hpp"

namespace tessera::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t labels = 3;

/// Cross-entropy of the labels at the last tokens of the rows, on the host in fp32.
struct ClassLoss final : LogitLoss {
  std::int64_t length;
  std::vector<double> losses;

  explicit ClassLoss(std::int64_t of) : length(of) {}
  void compute(memory::Queue&, LogitChunk const& chunk) override {
    for (std::int64_t i = 0; i < chunk.losses.numel(); ++i) {
      std::int64_t const position = chunk.first_position + i;
      bool const counts = position % length == length - 1;
      float const* const logits = chunk.logits.as<float>() + i * chunk.logits.dim(1);
      std::int64_t const label = position / length % labels;
      double sum = 0.0, exponents[labels];
      for (std::int64_t k = 0; k < labels; ++k) sum += exponents[k] = std::exp(logits[k]);
      double const loss = counts ? std::log(sum) - logits[label] : 0.0;
      chunk.losses.as<float>()[i] = static_cast<float>(loss);
      if (chunk.dlogits.empty()) continue;
      float* const gradients = chunk.dlogits.as<float>() + i * chunk.dlogits.dim(1);
      for (std::int64_t k = 0; k < labels; ++k)
        gradients[k] =
            counts ? static_cast<float>(chunk.gradient_scale * (exponents[k] / sum - (k == label)))
                   : 0.0f;
    }
  }
};

ModelOptions options_of(test::StoredCase const& c) {
  ModelOptions options = Dtype::fp32;
  options.head = {.outputs = labels, .architecture = c.entry.at("architecture").as_string()};
  return options;
}

using OwnHead = test::FamilyTest;
INSTANTIATE_TEST_SUITE_P(Stored, OwnHead, testing::ValuesIn(test::read_cases("classification")),
                         [](auto const& info) { return info.param.name; });

TEST_P(OwnHead, LossAndGradientsMatchTransformers) {
  auto const& c = GetParam();
  test::FamilyModel model(c, options_of(c));
  auto const tokens = c.tokens();
  ClassLoss loss(c.sequence);
  Batch batch{tokens.data(), c.rows, c.sequence};
  batch.loss = &loss;
  ASSERT_EQ(model.lm->predictions(batch), c.rows);
  auto const rows = static_cast<double>(c.rows);
  EXPECT_NEAR(model.train(batch, {.gradient_scale = static_cast<float>(1.0 / rows)}) / rows, c.loss,
              2e-6 * c.loss);
  std::size_t compared = 0;
  model.params.for_each([&](int unit, std::size_t p, memory::ParameterSpec const& spec) {
    ASSERT_TRUE(c.gradients.contains(spec.name)) << spec.name;
    EXPECT_LE(test::worst(model.params.gradient_values(unit, p), c.gradients.at(spec.name)), 1e-5)
        << spec.name;
    ++compared;
  });
  EXPECT_EQ(compared, c.gradients.size());
  std::int64_t hits = -7;
  batch.hits = &hits;
  EXPECT_NEAR(model.evaluate(batch) / rows, c.loss, 2e-6 * c.loss);
  EXPECT_EQ(hits, -7) << "outputs are no tokens";
  EXPECT_EQ(model.lm->config().at("architectures").as_array()[0].as_string(),
            c.entry.at("architecture").as_string());
}

TEST_P(OwnHead, ReplacesThatForTheVocabulary) {
  auto const& c = GetParam();
  auto const lm = make_model(c.config, options_of(c));
  EXPECT_THAT(lm->parameter_changes().added, ElementsAre("score.weight"));
  EXPECT_EQ(lm->parameter_changes().removed.size(), 1u);
  EXPECT_EQ(lm->units().back().parameters.back().name, "score.weight");
  for (auto const& unit : lm->units())
    for (auto const& parameter : unit.parameters) EXPECT_TRUE(parameter.aliases.empty());
}

TEST_P(OwnHead, IsRefusedWhereTokensAreWanted) {
  auto const& c = GetParam();
  test::FamilyModel model(c, options_of(c));
  auto const tokens = c.tokens();
  auto const refusal = [](auto const& call) -> std::string {
    try {
      call();
    } catch (ConfigError const& e) {
      return e.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(refusal([&] {
                model.train({tokens.data(), c.rows, c.sequence}, {});
              }),
              HasSubstr("score.weight are no tokens"));
  EXPECT_THAT(refusal([&] { model.lm->make_cache(1, 4, *model.queue); }),
              HasSubstr("generate with a model for the vocabulary"));
  auto options = options_of(c);
  options.lora.emplace();
  EXPECT_THAT(refusal([&] { make_model(c.config, options); }),
              HasSubstr("adapters freeze it; leave use_peft_lora out"));
  options = options_of(c);
  options.head->outputs = 0;
  EXPECT_THAT(refusal([&] { make_model(c.config, options); }), HasSubstr("at least one output"));
}

}  // namespace
}  // namespace tessera::model
