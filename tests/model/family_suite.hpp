#pragma once
/// The tests of every model family, against the cases of tests/oracles/model_families.py.

#include <gmock/gmock.h>

#include "stored_checks.hpp"
#include "tessera/core/error.hpp"

namespace tessera::test {

inline std::vector<StoredCase> const& family_cases(std::string const& family) {
  static std::map<std::string, std::vector<StoredCase>> read;
  auto const [found, is_new] = read.try_emplace(family);
  if (is_new) found->second = read_cases("families/" + family);
  return found->second;
}

/// Weights of the generator: a parameter's stream is the hash of its name.
inline ResidentParams::Fill named_weights(std::string const& family) {
  bool const offset = family.starts_with("gemma");  // the models add one themselves
  return [offset](memory::ParameterSpec const& spec, float* out) {
    std::uint64_t stream = 0xCBF29CE484222325u;
    for (char const c : spec.name)
      stream = (stream ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    stream &= 0x7FFFFFFFu;
    bool const gain = spec.shape.size() == 1 && spec.name.ends_with(".weight") && !offset;
    for (std::int64_t i = 0; i < spec.numel(); ++i)
      out[i] = unit_value(stream, static_cast<std::uint64_t>(i)) * 0.25f + (gain ? 1.0f : 0.0f);
  };
}

/// With the adapters that a case has.
inline model::ModelOptions options_of(StoredCase const& c, Dtype dtype) {
  model::ModelOptions options = dtype;
  options.documents = c.documents();
  if (auto const* adapter = c.entry.find("adapter"))
    options.lora = model::read_adapter_config(*adapter);
  return options;
}

struct FamilyModel : StoredModel {
  explicit FamilyModel(StoredCase const& c, Dtype dtype = Dtype::fp32)
      : FamilyModel(c, options_of(c, dtype)) {}
  FamilyModel(StoredCase const& c, model::ModelOptions const& options)
      : StoredModel(c.config, options, named_weights(c.config.at("model_type").as_string())) {}
};

inline std::vector<std::vector<float>> gradients_of(ResidentParams const& params) {
  std::vector<std::vector<float>> out;
  params.for_each([&](int unit, std::size_t p, memory::ParameterSpec const& spec) {
    if (spec.trains) out.push_back(params.gradient_values(unit, p));
  });
  return out;
}

/// Recomputed activations have the same bits; a second micro-step doubles the gradients.
inline void expect_passes_agree(StoredCase const& c, Dtype dtype) {
  auto const tokens = c.tokens();
  model::Batch const batch{tokens.data(), c.rows, c.sequence};
  FamilyModel kept(c, dtype);
  double const loss = kept.train(batch, {});
  auto const once = gradients_of(kept.params);
  for (auto const recompute : {Recompute::light, Recompute::block}) {
    FamilyModel recomputed(c, dtype);
    EXPECT_EQ(loss, recomputed.train(batch, {.recompute = recompute})) << name_of(recompute);
    EXPECT_EQ(once, gradients_of(recomputed.params)) << name_of(recompute);
  }
  kept.train(batch, {});
  auto const twice = gradients_of(kept.params);
  double const tolerance = dtype == Dtype::fp32 ? 2e-6 : 0x1.0p-7;
  for (std::size_t t = 0; t < once.size(); ++t)
    for (std::size_t i = 0; i < once[t].size(); ++i)
      ASSERT_NEAR(twice[t][i], 2.0f * once[t][i], tolerance * largest(twice[t])) << t << ", " << i;
}

/// The arena grows by no more than what is planned.
inline void expect_memory_as_planned(StoredCase const& c) {
  auto const tokens = c.tokens();
  for (auto const recompute : {Recompute::none, Recompute::light, Recompute::block}) {
    FamilyModel b(c);
    auto const planned = b.lm->activation_bytes(
        {memory::Pass::training, c.rows, c.sequence, recompute}, memory::MemorySpace::host);
    b.lm->reserve_activations(planned, *b.queue);
    auto const held = [] {
      return memory::MemoryTracker::of_process().current(memory::Purpose::activations);
    };
    auto const reserved = held();
    b.train({tokens.data(), c.rows, c.sequence}, {.recompute = recompute});
    EXPECT_EQ(held(), reserved) << name_of(recompute);
  }
}

/// Steps as torch.optim.AdamW makes them, in fp32 with moments in double.
class AdamWSteps {
 public:
  static constexpr double rate = 5e-3, decay = 0.1;

  explicit AdamWSteps(StoredCase const& c) : model_(c), sequence_(c.sequence) {}

  /// The mean loss of a batch of complete rows, which an update follows.
  double step(std::vector<std::int32_t> const& tokens) {
    std::int64_t const rows = static_cast<std::int64_t>(tokens.size()) / sequence_;
    auto const n = static_cast<double>(model_.lm->predictions({tokens.data(), rows, sequence_}));
    model_.params.begin_step();
    double const loss = model_.train({tokens.data(), rows, sequence_},
                                     {.gradient_scale = static_cast<float>(1.0 / n)}) /
                        n;
    ++steps_;
    model_.params.for_each([&](int unit, std::size_t p, memory::ParameterSpec const& spec) {
      if (spec.trains) update(unit, p, moments_[spec.name]);
    });
    return loss;
  }

 private:
  struct Moments {
    std::vector<double> first, second;
  };

  void update(int unit, std::size_t p, Moments& m) {
    constexpr double beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-8;
    double const correction_1 = 1.0 - std::pow(beta_1, steps_),
                 correction_2 = 1.0 - std::pow(beta_2, steps_);
    auto w = model_.params.weight_values(unit, p);
    auto const g = model_.params.gradient_values(unit, p);
    m.first.resize(w.size());
    m.second.resize(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      double const gradient = g[i];
      m.first[i] = beta_1 * m.first[i] + (1.0 - beta_1) * gradient;
      m.second[i] = beta_2 * m.second[i] + (1.0 - beta_2) * gradient * gradient;
      double const moved =
          m.first[i] / correction_1 / (std::sqrt(m.second[i] / correction_2) + epsilon);
      w[i] = static_cast<float>(w[i] * (1.0 - rate * decay) - rate * moved);
    }
    model_.params.set_weight(unit, p, w);
  }

  FamilyModel model_;
  std::int64_t sequence_;
  std::map<std::string, Moments> moments_;
  int steps_ = 0;
};

/// Losses of ten steps.
inline void expect_trajectory(StoredCase const& c) {
  AdamWSteps training(c);
  std::uint64_t step = 0;
  for (auto const& want : c.entry.at("trajectory").as_array()) {
    double const loss = training.step(c.tokens(step++));
    EXPECT_NEAR(loss, want.as_double(), 2e-6 * want.as_double()) << "step " << step;
  }
}

/// transformers' defaults, apart from its version.
inline void expect_default_config(std::string const& family) {
  ConfigTree const theirs = ConfigTree::read(
      std::string(TESSERA_TEST_DATA "/model/data/families/") + family + ".default.json");
  ConfigTree const ours = model::default_config(family);
  for (auto const& [key, value] : theirs.as_object()) {
    ASSERT_TRUE(ours.contains(key)) << key;
    EXPECT_EQ(ours.at(key).dump(), value.dump()) << key;
  }
  EXPECT_EQ(ours.size(), theirs.size() + 1) << "the architecture";
}

/// The message of the refusal of a stored configuration after a change.
inline std::string refusal_of(ConfigTree const& config) {
  try {
    model::make_model(config, Dtype::fp32);
  } catch (ConfigError const& e) {
    return e.what();
  }
  return "nothing was thrown";
}

class FamilyTest : public testing::TestWithParam<StoredCase> {};

}  // namespace tessera::test

/// Tests of a family whose model_type is @p model_type.
#define TESSERA_FAMILY_SUITE(Suite, model_type)                                              \
  using Suite = tessera::test::FamilyTest;                                                   \
  INSTANTIATE_TEST_SUITE_P(Stored, Suite,                                                    \
                           testing::ValuesIn(tessera::test::family_cases(model_type)),       \
                           [](auto const& info) { return info.param.name; });                \
  TEST_P(Suite, TrainingMatchesTransformers) {                                               \
    tessera::test::FamilyModel model(GetParam());                                            \
    tessera::test::expect_training_matches(GetParam(), model);                               \
  }                                                                                          \
  TEST_P(Suite, EvaluationAndLogitsMatchTransformers) {                                      \
    tessera::test::FamilyModel model(GetParam());                                            \
    tessera::test::expect_evaluation_matches(GetParam(), model);                             \
  }                                                                                          \
  TEST_P(Suite, TenStepsMatchTransformers) { tessera::test::expect_trajectory(GetParam()); } \
  TEST_P(Suite, PassesAgree) {                                                               \
    for (auto const dtype : {tessera::Dtype::fp32, tessera::Dtype::bf16})                    \
      tessera::test::expect_passes_agree(GetParam(), dtype);                                 \
  }                                                                                          \
  TEST_P(Suite, NeedsTheMemoryThatIsPlanned) {                                               \
    tessera::test::expect_memory_as_planned(GetParam());                                     \
  }                                                                                          \
  TEST(Suite##Config, DefaultsAreThoseOfTransformers) {                                      \
    tessera::test::expect_default_config(model_type);                                        \
  }
