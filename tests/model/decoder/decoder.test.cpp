/// What a pass promises: acquisition order, accumulation, dropout by global row, recomputation,
/// steady memory, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "gpt2_case.hpp"
#include "tessera/core/error.hpp"

namespace {

using namespace tessera;
using namespace tessera::test;
using testing::ElementsAre;
using testing::HasSubstr;

Gpt2Case const& stored(std::string const& name) {
  for (auto const& c : gpt2_cases())
    if (c.name == name) return c;
  throw std::out_of_range(name);
}

ConfigTree with_dropout(ConfigTree config) {
  for (auto const* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) config.set(key, 0.2);
  return config;
}

using Gradients = std::vector<std::vector<float>>;
Gradients all_gradients(ResidentParams const& params) {
  Gradients out;
  params.for_each([&](int unit, std::size_t p, memory::ParameterSpec const&) {
    out.push_back(params.gradient_values(unit, p));
  });
  return out;
}

double worst_difference(Gradients const& a, Gradients const& b) {
  double out = 0.0;
  for (std::size_t t = 0; t < a.size(); ++t) {
    double difference = 0.0, size = 0.0;
    for (std::size_t i = 0; i < a[t].size(); ++i) {
      difference = std::max(difference,
                            std::abs(static_cast<double>(a[t][i]) - static_cast<double>(b[t][i])));
      size = std::max(size, std::abs(static_cast<double>(a[t][i])));
    }
    out = std::max(out, difference / size);
  }
  return out;
}

TEST(Passes, UnitsAreTakenAndCompletedInOrder) {
  auto const& c = stored("tied");
  auto const tokens = c.tokens();
  Bench b(c.config, Dtype::fp32);
  b.train({tokens.data(), c.rows, c.sequence}, {});
  EXPECT_THAT(b.params.announced(), ElementsAre(0, 1, 2, 3, 0, 2, 1));
  EXPECT_THAT(b.params.completed, ElementsAre(3, 2, 1, 0));
  b.train({tokens.data(), c.rows, c.sequence}, {.recompute = Recompute::block});
  EXPECT_THAT(b.params.announced(), ElementsAre(0, 1, 2, 3, 0, 2, 1));
  b.evaluate({tokens.data(), c.rows, c.sequence});
  EXPECT_THAT(b.params.announced(), ElementsAre(0, 1, 2, 3, 0));
  EXPECT_EQ(b.params.leased, 0);
}

TEST(Passes, UntiedHeadDoesNotTakeTheEmbedding) {
  auto const& c = stored("untied");
  auto const tokens = c.tokens();
  Bench b(c.config, Dtype::fp32);
  b.train({tokens.data(), c.rows, c.sequence}, {});
  EXPECT_THAT(b.params.announced(), ElementsAre(0, 1, 2, 3, 2, 1));
  EXPECT_THAT(b.params.completed, ElementsAre(3, 2, 1, 0));
}

TEST(Passes, SecondMicroStepAdds) {
  for (auto const* name : {"tied", "untied", "odd_sizes"}) {
    auto const& c = stored(name);
    auto const tokens = c.tokens();
    Bench b(c.config, Dtype::fp32);
    b.train({tokens.data(), c.rows, c.sequence}, {});
    Gradients twice = all_gradients(b.params);
    for (auto& tensor : twice)
      for (float& x : tensor) x *= 2.0f;
    b.train({tokens.data(), c.rows, c.sequence}, {});
    EXPECT_LE(worst_difference(twice, all_gradients(b.params)), 2e-6) << name;
  }
}

TEST(Passes, RecomputationGivesTheSameBits) {
  for (Dtype const dtype : {Dtype::fp32, Dtype::bf16}) {
    auto const& c = stored("tied");
    auto const tokens = c.tokens();
    Bench kept(with_dropout(c.config), dtype);
    model::Batch const batch{tokens.data(), c.rows, c.sequence};
    double const loss = kept.train(batch, {.dropout_seed = 3});
    for (auto const recompute : {Recompute::light, Recompute::block}) {
      Bench recomputed(with_dropout(c.config), dtype);
      EXPECT_EQ(loss, recomputed.train(batch, {.dropout_seed = 3, .recompute = recompute}));
      EXPECT_EQ(all_gradients(kept.params), all_gradients(recomputed.params));
    }
  }
}

/// GPT-2's blocks keep 16 x width elements per position with their input; light recomputation
/// shares the inputs of attention and perceptron (1 each) and the activations (4), of one block
/// only.
TEST(Passes, LightRecomputationKeepsAboutAThirdLess) {
  auto const& c = stored("tied");
  ConfigTree config = c.config;
  config.set("n_layer", 12).set("n_embd", 64).set("n_head", 2).set("vocab_size", 100);
  auto const lm = model::make_model(config, Dtype::fp32);
  auto const bytes = [&](Recompute recompute) {
    return static_cast<double>(lm->activation_bytes(
        {.rows = 8, .sequence = c.sequence, .recompute = recompute}, memory::MemorySpace::host));
  };
  double const element = 8.0 * static_cast<double>(c.sequence) * 64 * 4;
  EXPECT_NEAR(bytes(Recompute::none) - bytes(Recompute::light), (12 * 6 - 5) * element,
              0.02 * bytes(Recompute::none));
  EXPECT_LT(bytes(Recompute::light), 0.7 * bytes(Recompute::none));
  EXPECT_LT(bytes(Recompute::block), bytes(Recompute::light));
}

TEST(Passes, DropoutMasksBelongToTheGlobalRow) {
  auto const& c = stored("unscaled");  // 4 rows
  auto const tokens = c.tokens();
  Bench whole(with_dropout(c.config), Dtype::fp32), halves(with_dropout(c.config), Dtype::fp32);
  model::PassSettings const settings{.dropout_seed = 7, .step = 5};
  double const loss = whole.train({tokens.data(), 4, c.sequence, 8}, settings);
  double const first = halves.train({tokens.data(), 2, c.sequence, 8}, settings);
  double const second = halves.train({tokens.data() + 2 * c.sequence, 2, c.sequence, 10}, settings);
  EXPECT_NEAR(loss, first + second, 1e-6 * loss);
  EXPECT_LE(worst_difference(all_gradients(whole.params), all_gradients(halves.params)), 3e-6);
}

TEST(Passes, DropoutChangesWithStepSeedAndRowAndIsOffInEvaluation) {
  auto const& c = stored("tied");
  auto const tokens = c.tokens();
  Bench b(with_dropout(c.config), Dtype::fp32);
  auto const loss = [&](std::uint64_t seed, std::uint64_t step, std::int64_t row) {
    return b.train({tokens.data(), c.rows, c.sequence, row}, {.dropout_seed = seed, .step = step});
  };
  double const base = loss(1, 1, 0);
  EXPECT_EQ(base, loss(1, 1, 0));
  EXPECT_NE(base, loss(2, 1, 0));
  EXPECT_NE(base, loss(1, 2, 0));
  EXPECT_NE(base, loss(1, 1, 1));
  double const n = static_cast<double>(c.predictions());
  EXPECT_NEAR(b.evaluate({tokens.data(), c.rows, c.sequence}) / n, c.loss, 2e-6 * c.loss);
}

/// d loss / d(step along the gradient) = |gradient|, parameter by parameter, with the masks of one
/// (seed, step).
TEST(Passes, GradientsWithDropoutMatchFiniteDifferences) {
  auto const& c = stored("tied");
  auto const tokens = c.tokens();
  Bench b(with_dropout(c.config), Dtype::fp32);
  model::Batch const batch{tokens.data(), c.rows, c.sequence, 3};
  model::PassSettings const settings{.dropout_seed = 11, .step = 2};
  b.train(batch, settings);
  Gradients const gradients = all_gradients(b.params);
  std::size_t index = 0;
  b.params.for_each([&](int unit, std::size_t p, memory::ParameterSpec const& spec) {
    auto const& g = gradients[index++];
    auto const w = b.params.weight_values(unit, p);
    double norm = 0.0;
    for (float const x : g) norm += static_cast<double>(x) * static_cast<double>(x);
    norm = std::sqrt(norm);
    auto const loss_at = [&](double step) {
      auto moved = w;
      for (std::size_t i = 0; i < w.size(); ++i)
        moved[i] += static_cast<float>(step * static_cast<double>(g[i]) / norm);
      b.params.set_weight(unit, p, moved);
      return b.train(batch, settings);
    };
    // fourth-order differences: the step is large enough for fp32 losses
    double const h = 0.02;
    double const slope =
        (8.0 * (loss_at(h) - loss_at(-h)) - (loss_at(2 * h) - loss_at(-2 * h))) / (12.0 * h);
    b.params.set_weight(unit, p, w);
    EXPECT_NEAR(slope / norm, 1.0, 2e-3) << spec.name;
  });
}

TEST(Passes, NothingIsAllocatedAfterTheFirstStep) {
  auto const& c = stored("tied");
  auto const tokens = c.tokens();
  Bench b(with_dropout(c.config), Dtype::bf16);
  model::Batch const batch{tokens.data(), c.rows, c.sequence};
  auto const held = [] {
    return memory::MemoryTracker::of_process().current(memory::Purpose::activations);
  };
  b.train(batch, {});
  std::size_t const after_first = held();
  EXPECT_GT(after_first, 0u);
  b.train(batch, {.step = 1});
  b.train({tokens.data(), 1, c.sequence}, {.step = 2});
  b.evaluate(batch);
  EXPECT_EQ(held(), after_first);
}

/// Oracle: what the arena allocates when a pass runs. Its chunks are multiples of 2 MiB.
TEST(Passes, NeedTheMemoryThatIsPlanned) {
  constexpr std::size_t granule = std::size_t{2} << 20;
  ConfigTree config = model::default_config("gpt2");
  config.set("n_layer", 2).set("n_embd", 128).set("n_head", 4).set("vocab_size", 1000);
  config.set("n_positions", 128);
  std::int64_t const rows = 12;
  std::vector<std::int32_t> const tokens(static_cast<std::size_t>(rows * 128), 7);
  model::Batch const batch{tokens.data(), rows, 128};
  auto const held = [] {
    return memory::MemoryTracker::of_process().current(memory::Purpose::activations);
  };
  auto const zeros = [](memory::ParameterSpec const& spec, float* out) {
    std::fill(out, out + spec.numel(), 0.0f);
  };
  struct Case {
    memory::Pass kind;
    Dtype dtype;
    Recompute recompute;
  };
  for (auto const& [kind, dtype, recompute] :
       {Case{memory::Pass::training, Dtype::fp32, Recompute::none},
        Case{memory::Pass::training, Dtype::fp32, Recompute::light},
        Case{memory::Pass::training, Dtype::fp32, Recompute::block},
        Case{memory::Pass::training, Dtype::bf16, Recompute::none},
        Case{memory::Pass::training, Dtype::bf16, Recompute::light},
        Case{memory::Pass::training, Dtype::bf16, Recompute::block},
        Case{memory::Pass::evaluation, Dtype::fp32, Recompute::none}}) {
    auto const grows_from = [&, kind = kind, dtype = dtype, recompute = recompute](
                                std::size_t planned, std::size_t less) {
      Bench b(with_dropout(config), dtype, zeros);
      b.lm->reserve_activations(planned - less, *b.queue);
      std::size_t const reserved = held();
      EXPECT_GE(reserved, planned - less);
      for (int repeat = 0; repeat < 2; ++repeat)
        if (kind == memory::Pass::training)
          b.train(batch, {.recompute = recompute});
        else
          b.evaluate(batch);
      return held() > reserved;
    };
    auto const planned =
        Bench(with_dropout(config), dtype, zeros)
            .lm->activation_bytes({kind, rows, 128, recompute}, memory::MemorySpace::host);
    std::string const name =
        concat(name_of(dtype), ", recompute ", name_of(recompute),
               kind == memory::Pass::training ? ", training: " : ", evaluation: ", planned);
    EXPECT_GT(planned, 10u << 20) << name << ": too small for chunks to show";
    EXPECT_FALSE(grows_from(planned, 0)) << name;
    EXPECT_TRUE(grows_from(planned, granule)) << name;
  }
}

TEST(Passes, EndBetweenLayersWhereTheCallerSays) {
  auto const& c = stored("tied");  // two blocks: five calls per pass
  auto const tokens = c.tokens();
  model::Batch const batch{tokens.data(), c.rows, c.sequence};
  Bench b(c.config, Dtype::fp32);
  int calls = 0;
  b.train(batch, {.between_layers = [&] { ++calls; }});
  EXPECT_EQ(calls, 5);
  for (int last = 1; last <= 5; ++last) {
    Bench ended(c.config, Dtype::fp32);
    calls = 0;
    EXPECT_THROW(ended.train(batch, {.between_layers =
                                         [&] {
                                           if (++calls == last) throw DataError("end");
                                         }}),
                 DataError);
    EXPECT_EQ(ended.params.leased, 0) << "weights are released after call " << last;
  }
}

using Tokens = std::vector<std::int32_t>;

TEST(Passes, RowsAreIndependent) {
  auto const& c = stored("unscaled");
  auto const tokens = c.tokens();
  Bench b(c.config, Dtype::fp32);
  auto const all = b.next_token_logits({tokens.data(), c.rows, c.sequence});
  auto const last = b.next_token_logits({tokens.data() + 3 * c.sequence, 1, c.sequence});
  for (std::size_t v = 0; v < last.size(); ++v)
    EXPECT_NEAR(last[v], all[3 * last.size() + v], 2e-6);
}

/// Logits of each row's last token after @p batch.
std::vector<float> decoded(Bench& b, model::KeyValueCache& cache, Tokens const& tokens,
                           Tokens const& first, Tokens const& counts) {
  auto const rows = static_cast<std::int64_t>(first.size()),
             queries = static_cast<std::int64_t>(tokens.size()) / rows;
  return b.lm->decode({tokens.data(), rows, queries, first.data(), counts.data()}, cache, b.params,
                      *b.queue);
}

void expect_close(std::vector<float> const& got, std::vector<float> const& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-6) << i;
}

TEST(Passes, ACacheHoldsWhatEarlierPassesComputed) {
  auto const& c = stored("tied");
  auto const all = c.tokens();
  Tokens const text(all.begin(), all.begin() + 8);
  Bench b(c.config, Dtype::fp32);
  auto const expected = b.next_token_logits({text.data(), 1, 8});
  auto const one = b.lm->make_cache(1, 8, *b.queue);
  for (std::int32_t t = 0; t < 7; ++t)
    decoded(b, *one, {text[static_cast<std::size_t>(t)]}, {t}, {1});
  expect_close(decoded(b, *one, {text[7]}, {7}, {1}), expected);

  auto const parts = b.lm->make_cache(1, 10, *b.queue);
  decoded(b, *parts, {text.begin(), text.begin() + 3}, {0}, {3});
  expect_close(decoded(b, *parts, {text.begin() + 3, text.end()}, {3}, {5}), expected);
}

TEST(Passes, RowsOfACacheHaveTheirOwnLengths) {
  auto const& c = stored("tied");
  auto const t = c.tokens();
  Bench b(c.config, Dtype::fp32);
  auto const cache = b.lm->make_cache(2, 8, *b.queue);
  auto const prompts = decoded(b, *cache, {t[0], t[1], t[2], t[3], t[4], 0, 0, 0}, {0, 0}, {4, 1});
  auto const second = decoded(b, *cache, {t[5], t[6]}, {4, 1}, {1, 1});
  auto const uncached = [&](Tokens const& text) {
    return b.next_token_logits({text.data(), 1, static_cast<std::int64_t>(text.size())});
  };
  auto const both = [](std::vector<float> a, std::vector<float> const& more) {
    a.insert(a.end(), more.begin(), more.end());
    return a;
  };
  expect_close(prompts, both(uncached({t[0], t[1], t[2], t[3]}), uncached({t[4]})));
  expect_close(second, both(uncached({t[0], t[1], t[2], t[3], t[5]}), uncached({t[4], t[6]})));
  EXPECT_THROW(b.lm->make_cache(1, 17, *b.queue), ConfigError) << "the model has 16 positions";
  EXPECT_THROW(decoded(b, *cache, {t[5], t[6]}, {8, 1}, {1, 1}), InternalError);
  EXPECT_THROW(decoded(b, *cache, {97, t[6]}, {4, 1}, {1, 1}), DataError);
  b.lm->decode_nothing(b.params, *b.queue);
}

/// Cross-entropy of the next token, on the host.
struct OwnLoss : model::LogitLoss {
  std::int64_t positions = 0;
  int gradients = 0;
  void compute(memory::Queue&, model::LogitChunk const& chunk) override {
    EXPECT_EQ(chunk.first_position, positions) << "chunks come in order";
    positions += chunk.targets.numel();
    auto const* const targets = chunk.targets.as<std::int32_t>();
    for (std::int64_t r = 0; r < chunk.targets.numel(); ++r) {
      float* const logits = chunk.logits.as<float>() + r * chunk.logits.dim(1);
      double sum = 0.0;
      for (std::int64_t v = 0; v < chunk.vocabulary; ++v) sum += std::exp(logits[v]);
      bool const counts = targets[r] >= 0;
      chunk.losses.as<float>()[r] =
          counts ? static_cast<float>(std::log(sum) - logits[targets[r]]) : 0.0f;
      if (chunk.dlogits.empty()) continue;
      ++gradients;
      for (std::int64_t v = 0; v < chunk.vocabulary; ++v) {
        double const d = counts ? std::exp(logits[v]) / sum - (v == targets[r]) : 0.0;
        float* const to = chunk.dlogits.as<float>() + r * chunk.dlogits.dim(1) + v;
        *to = static_cast<float>(d) * chunk.gradient_scale;
      }
    }
  }
};

TEST(Passes, TakeALossOfTheCallersOwn) {
  auto const& c = stored("tied");
  auto const tokens = c.tokens();
  Bench standard(c.config, Dtype::fp32), own(c.config, Dtype::fp32);
  model::Batch batch{tokens.data(), c.rows, c.sequence};
  double const expected = standard.train(batch, {.gradient_scale = 0.5f});
  OwnLoss loss;
  batch.loss = &loss;
  EXPECT_NEAR(own.train(batch, {.gradient_scale = 0.5f}), expected, 2e-6 * expected);
  EXPECT_EQ(loss.gradients, c.rows * c.sequence);
  EXPECT_LT(worst_difference(all_gradients(own.params), all_gradients(standard.params)), 1e-5);
  loss = {};
  EXPECT_NEAR(own.evaluate(batch), expected, 2e-6 * expected);
  EXPECT_EQ(loss.gradients, 0);
  EXPECT_EQ(loss.positions, c.rows * c.sequence);
}

TEST(Passes, WhatCannotBeRunIsRefused) {
  auto const& c = stored("tied");
  std::vector<std::int32_t> tokens(64, 1);
  Bench b(c.config, Dtype::fp32);
  auto const refusal = [&](auto error, model::Batch const& batch) -> std::string {
    try {
      b.evaluate(batch);
    } catch (decltype(error) const& e) {
      return e.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(refusal(ConfigError(""), {tokens.data(), 1, 17}),
              testing::AllOf(HasSubstr("17 tokens"), HasSubstr("at most 16")));
  EXPECT_THAT(refusal(ConfigError(""), {tokens.data(), 0, 16}), HasSubstr("0 rows"));
  tokens[20] = 97;
  EXPECT_THAT(refusal(DataError(""), {tokens.data(), 2, 16}),
              HasSubstr("token 97 in row 1 at position 4"));
  tokens[20] = -1;
  EXPECT_THAT(refusal(DataError(""), {tokens.data(), 2, 16}), HasSubstr("token -1"));
}

}  // namespace
