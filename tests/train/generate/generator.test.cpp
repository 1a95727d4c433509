/// Generation by a model whose answers are known, and by all families against transformers at
/// stages 0 and 3, on one rank and more.
#include "tessera/train/generate/generator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../model/family_suite.hpp"
#include "mpi_test.hpp"
#include "small_run.hpp"
#include "tessera/comm/compose/host_collectives.hpp"

namespace tessera::train {
namespace {

using ::testing::ElementsAre;

SamplingOptions const greedy{.temperature = 0.0};

struct Generation : ::testing::Test {
  std::vector<GeneratedText> generate(std::vector<Tokens> const& prompts,
                                      GenerationOptions const& options) {
    return train::generate({model, weights, *compute, mesh}, prompts, options);
  }
  Tokens generate(GenerationOptions const& options) { return generate({{7}}, options)[0].tokens; }
  bool is_root() const { return comm->rank() == 0; }

  test::CountingModel model;
  test::NoWeights weights;
  std::unique_ptr<memory::Queue> compute = memory::make_inline_queue("compute");
  std::unique_ptr<comm::Collectives> comm =
      comm::make_mpi(test::session(), std::chrono::seconds(60));
  comm::Mesh mesh{*comm};
};

TEST_F(Generation, GivesEachPassOnlyTheNewTokens) {
  EXPECT_THAT(generate({.max_new_tokens = 5, .sampling = greedy}), ElementsAre(8, 9, 10, 11, 12));
  if (is_root()) {
    EXPECT_THAT(model.queries, ElementsAre(1, 1, 1, 1, 1));
  } else {
    EXPECT_EQ(model.idle_passes, 5) << "takes part in the gathers";
  }
}

TEST_F(Generation, ContinuesPromptsOfDifferentLengthsInPasses) {
  std::vector<Tokens> const prompts{{1, 2, 3, 4, 5}, {20}, {30, 31}, {40}, {50, 60, 70}};
  auto const texts =
      generate(prompts, {.max_new_tokens = 3, .sampling = greedy, .rows_per_pass = 2});
  ASSERT_EQ(texts.size(), 5u);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    auto const last = prompts[i].back();
    EXPECT_THAT(texts[i].tokens, ElementsAre(last + 1, last + 2, last + 3));
    EXPECT_EQ(texts[i].finish, FinishReason::length);
  }
  if (is_root()) {
    EXPECT_EQ(model.queries[0], 5) << "the longest prompt of the pass";
  }
}

TEST_F(Generation, EndsEachTextByItself) {
  std::vector<Tokens> const prompts{{7}, {80}, {1, 2}};
  auto const texts =
      generate(prompts, {.max_new_tokens = 50, .sampling = greedy, .ends_of_text = {9, 82}});
  EXPECT_THAT(texts[0].tokens, ElementsAre(8, 9));
  EXPECT_EQ(texts[0].finish, FinishReason::end_of_text);
  EXPECT_THAT(texts[1].tokens, ElementsAre(81, 82));
  EXPECT_THAT(texts[2].tokens, ElementsAre(3, 4, 5, 6, 7, 8, 9));
}

TEST_F(Generation, EndsAtTheLastPositionOfTheModel) {
  auto const texts = generate({{1, 2}, {3}}, {.max_new_tokens = 50, .sampling = greedy});
  EXPECT_EQ(texts[0].tokens.size(), 18u);
  EXPECT_EQ(texts[1].tokens.size(), 19u);
  EXPECT_EQ(texts[1].finish, FinishReason::length);
}

TEST_F(Generation, RefusesPromptsWithoutRoom) {
  for (auto const& [prompt, part] : {std::pair<Tokens, char const*>{{}, "prompt 2 has no tokens"},
                                     {Tokens(20, 1), "prompt 2 has 20 tokens"}}) {
    try {
      generate({{1}, prompt}, {});
      ADD_FAILURE() << part;
    } catch (DataError const& e) {
      EXPECT_THAT(e.what(), ::testing::HasSubstr(part));
    }
  }
}

TEST_F(Generation, RepeatsForTheSameSeed) {
  GenerationOptions const hot{
      .max_new_tokens = 18, .sampling = {.temperature = 5.0, .top_k = 0}, .seed = 1};
  auto other = hot;
  other.seed = 2;
  auto const first = generate(hot);
  EXPECT_EQ(generate(hot), first);
  EXPECT_NE(generate(other), first);
  auto const two = generate({{7}, {7}}, hot);
  EXPECT_EQ(two[0].tokens, first);
  EXPECT_NE(two[1].tokens, first) << "each prompt has its own numbers";
}

TEST_F(Generation, AsksTheObserverOnRankZero) {
  std::vector<std::size_t> seen, complete;
  GenerationOptions options{.max_new_tokens = 9, .sampling = greedy};
  options.after_token = [&](std::size_t prompt, Tokens const& tokens) {
    seen.push_back(10 * prompt + tokens.size());
    return prompt == 1 && tokens.size() == 2;
  };
  options.after_text = [&](std::size_t prompt, GeneratedText const&) {
    complete.push_back(prompt);
  };
  auto const texts = generate({{1}, {2}}, options);
  EXPECT_EQ(texts[0].tokens.size(), 9u);
  EXPECT_THAT(texts[1].tokens, ElementsAre(3, 4));
  EXPECT_EQ(texts[1].finish, FinishReason::stopped);
  EXPECT_EQ(seen.size(), is_root() ? 11u : 0u);
  EXPECT_EQ(complete.size(), is_root() ? 2u : 0u);
}

TEST_F(Generation, EndsWithWhatIsThrownBetweenPasses) {
  int passes = 0;
  GenerationOptions options{.max_new_tokens = 9, .sampling = greedy};
  options.between_passes = [&] {
    if (++passes == 4) throw std::runtime_error("stop");
  };
  EXPECT_THROW(generate({{1}}, options), std::runtime_error);
}

/// tests/oracles/generation.py
ConfigTree const& stored_generations() {
  static ConfigTree const stored =
      ConfigTree::read(TESSERA_TEST_DATA "/model/data/generation.json");
  return stored;
}

struct Families : ::testing::TestWithParam<std::tuple<std::size_t, int>> {
  static Tokens tokens_of(ConfigTree const& list) {
    Tokens out;
    for (auto const& token : list.as_array())
      out.push_back(static_cast<std::int32_t>(token.as_int()));
    return out;
  }
  std::unique_ptr<zero::Weights> weights_for(model::CausalLm const& model,
                                             std::string const& family, int stage) {
    zero::EngineConfig config;
    config.partition = zero::partition_of(stage);
    auto out = zero::make_weights(config, model.units(), *comm, *compute);
    auto const weights = test::named_weights(family);
    out->initialize([&](memory::UnitIndex unit, int parameter, std::int64_t first,
                        std::int64_t numel, float* out) {
      auto const& spec =
          model.units()[memory::position(unit)].parameters[static_cast<std::size_t>(parameter)];
      std::vector<float> values(static_cast<std::size_t>(spec.numel()));
      weights(spec, values.data());
      std::copy_n(values.data() + first, numel, out);
    });
    return out;
  }
  std::unique_ptr<memory::Queue> compute = memory::make_inline_queue("compute");
  std::unique_ptr<comm::Collectives> comm =
      comm::make_mpi(test::session(), std::chrono::seconds(60));
  comm::Mesh mesh{*comm};
};

TEST_P(Families, GenerateWhatTransformersGenerates) {
  auto const& [index, stage] = GetParam();
  auto const& c = stored_generations().as_array()[index];
  auto const model = model::make_model(c.at("config"), Dtype::fp32);
  auto const weights = weights_for(*model, c.at("family").as_string(), stage);
  std::vector<Tokens> prompts;
  for (auto const& row : c.at("rows").as_array()) prompts.push_back(tokens_of(row.at("prompt")));
  for (std::int64_t const rows : {1, 2, 3})
    for (auto const& [penalty, field] : {std::pair{1.0, "tokens"}, {1.3, "penalized"}}) {
      auto const texts = generate({*model, *weights, *compute, mesh}, prompts,
                                  {.max_new_tokens = c.at("new_tokens").as_int(),
                                   .sampling = {.temperature = 0.0, .repetition_penalty = penalty},
                                   .rows_per_pass = rows});
      for (std::size_t i = 0; i < texts.size(); ++i)
        EXPECT_EQ(texts[i].tokens, tokens_of(c.at("rows").as_array()[i].at(field)))
            << field << " of prompt " << i << ", " << rows << " rows per pass";
    }
}

INSTANTIATE_TEST_SUITE_P(All, Families,
                         ::testing::Combine(::testing::Range(std::size_t{0},
                                                             stored_generations().size()),
                                            ::testing::Values(0, 3)),
                         [](auto const& info) {
                           auto const& c = stored_generations().as_array()[std::get<0>(info.param)];
                           return concat(c.at("family").as_string(), "_", c.at("name").as_string(),
                                         "_stage_", std::get<1>(info.param));
                         });

}  // namespace
}  // namespace tessera::train
