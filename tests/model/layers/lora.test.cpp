/// Adapters of all families against PEFT (tests/oracles/lora.py), and frozen parameters.
#include "tessera/model/layers/lora.hpp"

#include "family_suite.hpp"
#include "tessera/model/decoder/causal_lm.hpp"

namespace {

using namespace tessera;
using namespace tessera::test;
using testing::HasSubstr;

std::vector<StoredCase> const& cases() {
  static auto const read = read_cases("lora");
  return read;
}

StoredCase const& case_of(std::string const& name) {
  for (auto const& c : cases())
    if (c.name == name) return c;
  throw InternalError("no case " + name);
}

class Lora : public testing::TestWithParam<StoredCase> {};
INSTANTIATE_TEST_SUITE_P(Stored, Lora, testing::ValuesIn(cases()),
                         [](auto const& info) { return info.param.name; });

TEST_P(Lora, TrainingMatchesPeft) {
  FamilyModel model(GetParam());
  expect_training_matches(GetParam(), model);
}
TEST_P(Lora, EvaluationAndLogitsMatchPeft) {
  FamilyModel model(GetParam());
  expect_evaluation_matches(GetParam(), model);
}
TEST_P(Lora, TenStepsMatchPeft) { expect_trajectory(GetParam()); }
TEST_P(Lora, PassesAgree) {
  for (auto const dtype : {Dtype::fp32, Dtype::bf16}) expect_passes_agree(GetParam(), dtype);
}
TEST_P(Lora, NeedsTheMemoryThatIsPlanned) { expect_memory_as_planned(GetParam()); }

/// With 16-bit products of fp32 weights, and 16-bit weights: the loss moves by their rounding.
TEST_P(Lora, SixteenBitLossesAreClose) {
  auto const& c = GetParam();
  auto const tokens = c.tokens();
  model::Batch const batch{tokens.data(), c.rows, c.sequence};
  for (auto const dtype : {Dtype::bf16, Dtype::fp16}) {
    model::ModelOptions autocast(Dtype::fp32, dtype), pure = dtype;
    autocast.lora = pure.lora = model::read_adapter_config(c.entry.at("adapter"));
    for (auto const& options : {autocast, pure}) {
      FamilyModel model(c, options);
      double const loss = model.train(batch, {}) / static_cast<double>(c.predictions());
      EXPECT_NEAR(loss, c.loss, (dtype == Dtype::bf16 ? 0x1.0p-6 : 0x1.0p-9) * c.loss);
    }
  }
}

TEST(LoraConfig, DefaultTargetsAreThoseOfPeft) {
  std::size_t compared = 0;
  for (auto const& c : cases()) {
    if (!c.name.ends_with("_default")) continue;
    ++compared;
    auto options = model::read_adapter_config(c.entry.at("adapter"));
    auto const targets = std::exchange(options.targets, {});
    EXPECT_THAT(model::complete_lora(options, c.config).targets,
                testing::UnorderedElementsAreArray(targets));
  }
  EXPECT_EQ(compared, 5u);
}

TEST(LoraInit, MatricesStartAsThoseOfPeft) {
  auto const& c = case_of("gpt2_all");
  auto const lm = model::make_model(c.config, options_of(c, Dtype::fp32));
  std::size_t adapters = 0;
  for (auto const& unit : lm->units())
    for (auto const& spec : unit.parameters) {
      EXPECT_EQ(spec.trains, spec.is_adapter);
      if (!spec.is_adapter) continue;
      ++adapters;
      std::vector<float> values(static_cast<std::size_t>(spec.numel()));
      model::initialize_parameter(spec, 1, 0, spec.numel(), values.data());
      bool const is_a = spec.name.ends_with(".lora_A.weight");
      double const bound = is_a ? 1.0 / std::sqrt(static_cast<double>(spec.shape[1])) : 0.0;
      EXPECT_LE(largest(values), bound) << spec.name;
      if (is_a) {
        EXPECT_GT(largest(values), 0.8 * bound) << spec.name;
      }
    }
  EXPECT_EQ(adapters, 2u * 2 * 4);
}

/// PEFT's gaussian has the standard deviation 1/r; false leaves B as nn.Linear starts it.
TEST(LoraInit, OtherFormsHaveOtherMatrices) {
  auto const& c = case_of("llama_all");
  for (auto const init : {model::LoraInit::gaussian, model::LoraInit::nonzero}) {
    auto options = options_of(c, Dtype::fp32);
    options.lora->init = init;
    options.lora->rank = 4;
    double squares = 0.0, count = 0.0;
    auto const model = model::make_model(c.config, options);
    for (auto const& unit : model->units())
      for (auto const& spec : unit.parameters) {
        if (!spec.is_adapter) continue;
        std::vector<float> values(static_cast<std::size_t>(spec.numel()));
        model::initialize_parameter(spec, 1, 0, spec.numel(), values.data());
        bool const is_a = spec.name.ends_with(".lora_A.weight");
        if (!is_a && init == model::LoraInit::gaussian) {
          EXPECT_EQ(largest(values), 0.0) << spec.name;
          continue;
        }
        for (float const x : values) squares += static_cast<double>(x) * x, count += 1.0;
        if (init == model::LoraInit::gaussian) continue;
        double const bound = 1.0 / std::sqrt(static_cast<double>(spec.shape[1]));
        EXPECT_LE(largest(values), bound) << spec.name;
        EXPECT_GT(largest(values), 0.8 * bound) << spec.name;
      }
    if (init == model::LoraInit::gaussian) {
      EXPECT_NEAR(std::sqrt(squares / count), 0.25, 0.03);
    }
  }
}

/// The parameters that train, by name.
std::map<std::string, memory::ParameterSpec> trained_of(ConfigTree const& config,
                                                        model::ModelOptions const& options) {
  std::map<std::string, memory::ParameterSpec> out;
  auto const model = model::make_model(config, options);
  for (auto const& unit : model->units())
    for (auto const& spec : unit.parameters)
      if (spec.trains) out.emplace(spec.name, spec);
  return out;
}

TEST(SavedModules, TrainInFullUnderTheirNamesInTheFile) {
  auto const& c = case_of("llama_all");
  auto options = options_of(c, Dtype::fp32);
  auto const adapters = trained_of(c.config, options);
  options.lora->modules_to_save = {"embed_tokens", "lm_head", "model.norm", "down_proj"};
  auto const trained = trained_of(c.config, options);
  for (char const* name : {"model.embed_tokens", "lm_head", "model.norm",
                           "model.layers.0.mlp.down_proj", "model.layers.1.mlp.down_proj"}) {
    std::string const saved = concat("base_model.model.", name, ".weight");
    ASSERT_TRUE(trained.contains(saved)) << saved;
    EXPECT_TRUE(model::is_saved_module(trained.at(saved)));
    EXPECT_FALSE(trained.contains(concat("base_model.model.", name, ".lora_A.weight"))) << name;
  }
  EXPECT_EQ(trained.size(), adapters.size() - 4 + 5) << "down_proj has no adapters";
}

TEST(SavedModules, OfATiedModelAreTrainedAsOne) {
  auto const& c = case_of("gpt2_all");
  auto options = options_of(c, Dtype::fp32);
  options.lora->modules_to_save = {"wte"};
  auto const refusal = [&] {
    try {
      (void)trained_of(c.config, options);
    } catch (ConfigError const& e) {
      return std::string(e.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(refusal(), HasSubstr("transformer.wte.weight, whose weights lm_head.weight shares"));
  options.lora->ties_saved_modules = true;
  EXPECT_THAT(model::complete_lora(*options.lora, c.config).modules_to_save,
              testing::ElementsAre("wte", "lm_head"));
  auto const trained = trained_of(c.config, options);
  EXPECT_THAT(trained.at("base_model.model.transformer.wte.weight").aliases,
              testing::ElementsAre("base_model.model.lm_head.weight"));
  options.lora->modules_to_save = {"ln_f"};
  EXPECT_FALSE(model::complete_lora(*options.lora, c.config).ties_saved_modules);
  options.lora->modules_to_save = {"classifier", "ln_f"};
  EXPECT_THAT(refusal(), HasSubstr("modules_to_save classifier names no module of the model"));
  options.lora->modules_to_save = {"_proj"};
  EXPECT_THAT(refusal(), HasSubstr("both name transformer.h.0.attn.c_proj"));
}

/// With B at zero the gradients are those of the model that trains in full.
TEST(SavedModules, HaveTheGradientsOfFullTraining) {
  auto const& c = case_of("llama_all");
  auto const tokens = c.tokens();
  model::Batch const batch{tokens.data(), c.rows, c.sequence};
  auto options = options_of(c, Dtype::fp32);
  options.lora->modules_to_save = {"embed_tokens", "lm_head", "model.norm", "v_proj"};
  auto const plain = named_weights("llama");
  FamilyModel all(c, model::ModelOptions(Dtype::fp32));
  StoredModel some(c.config, options, [&](memory::ParameterSpec const& spec, float* out) {
    memory::ParameterSpec named = spec;
    if (spec.is_adapter) return std::fill_n(out, spec.numel(), 0.0f), void();
    if (model::is_saved_module(spec)) named.name.erase(0, sizeof model::adapter_prefix - 1);
    plain(named, out);
  });
  EXPECT_NEAR(all.train(batch, {}), some.train(batch, {}), 1e-4);
  std::map<std::string, std::vector<float>> want;
  all.params.for_each([&](int unit, std::size_t p, memory::ParameterSpec const& spec) {
    want[model::adapter_prefix + spec.name] = all.params.gradient_values(unit, p);
  });
  std::size_t compared = 0;
  some.params.for_each([&](int unit, std::size_t p, memory::ParameterSpec const& spec) {
    if (!model::is_saved_module(spec)) return;
    ++compared;
    EXPECT_LE(worst(some.params.gradient_values(unit, p), want.at(spec.name)), 1e-5) << spec.name;
  });
  EXPECT_EQ(compared, 5u);
}

TEST(LoraConfig, RoundTripsThroughTheFile) {
  for (auto const& c : cases()) {
    auto const read = model::read_adapter_config(c.entry.at("adapter"));
    auto const written = model::adapter_config(read, "some/base");
    EXPECT_EQ(model::read_adapter_config(written), read) << c.name;
    EXPECT_EQ(written.at("base_model_name_or_path").as_string(), "some/base");
    for (auto const& [key, value] : written.as_object()) {
      if (key == "base_model_name_or_path" || key == "inference_mode" || key == "target_modules")
        continue;
      EXPECT_EQ(value.dump(), c.entry.at("adapter").at(key).dump()) << c.name << ": " << key;
    }
  }
}

std::string refusal_of_adapters(ConfigTree const& config) {
  try {
    model::read_adapter_config(config);
  } catch (ConfigError const& e) {
    return e.what();
  }
  return "nothing was thrown";
}

std::string refusal_of_adapter(char const* key, ConfigTree value) {
  ConfigTree config = case_of("gpt2_all").entry.at("adapter");
  return refusal_of_adapters(config.set(key, std::move(value)));
}

TEST(LoraConfig, WhatIsNotComputedIsRefusedByName) {
  EXPECT_THAT(refusal_of_adapter("bias", "all"), HasSubstr("bias is \"all\""));
  EXPECT_THAT(refusal_of_adapter("rank_pattern", ConfigTree::object().set("c_fc", 4)),
              HasSubstr("rank_pattern is {\"c_fc\":4}"));
  EXPECT_THAT(refusal_of_adapter("layers_to_transform", ConfigTree::Array{1}),
              HasSubstr("layers_to_transform is [1]"));
  EXPECT_THAT(refusal_of_adapter("init_lora_weights", "pissa"),
              testing::AllOf(HasSubstr("init_lora_weights is \"pissa\""),
                             HasSubstr("path_initial_model_for_weight_conversion")));
  EXPECT_THAT(refusal_of_adapter("some_new_option", 3), HasSubstr("some_new_option is 3"));
  ConfigTree several = case_of("gpt2_all").entry.at("adapter");
  several.set("use_qalora", true).set("bias", "all");
  EXPECT_THAT(refusal_of_adapters(several),
              testing::AllOf(HasSubstr("use_qalora is true"), HasSubstr("bias is \"all\"")));
  EXPECT_THAT(refusal_of_adapter("peft_type", "IA3"), HasSubstr("peft_type is 'IA3'"));
  EXPECT_THAT(refusal_of_adapter("task_type", "SEQ_CLS"), HasSubstr("task_type is 'SEQ_CLS'"));
  EXPECT_THAT(refusal_of_adapter("r", 0), HasSubstr("r is 0"));
  EXPECT_THAT(refusal_of_adapter("lora_alpha", -1), HasSubstr("lora_alpha is -1"));
  EXPECT_THAT(refusal_of_adapter("lora_dropout", 1.0), HasSubstr("lora_dropout is 1"));
}

TEST(LoraConfig, TargetsMustNameALayer) {
  auto const& c = case_of("gpt2_all");
  auto options = options_of(c, Dtype::fp32);
  auto const refusal = [&] {
    try {
      (void)model::make_model(c.config, options);
    } catch (ConfigError const& e) {
      return std::string(e.what());
    }
    return std::string("nothing was thrown");
  };
  options.lora->targets = {"q_proj", "attn"};
  EXPECT_THAT(refusal(), HasSubstr("q_proj, attn name no linear layer of a block; the first block "
                                   "has transformer.h.0.attn.c_attn, "));
  options.lora->pattern = "h.(";
  EXPECT_THAT(refusal(), HasSubstr("'h.(' is not a regular expression"));
}

/// The rest has the gradients that it has when all train, and the pass ends where nothing trains.
TEST(FrozenParameters, LeaveTheOtherGradientsAsTheyAre) {
  for (auto const& [name, pattern] : {std::pair("gpt2_all", ".*\\.wte\\..*|.*\\.h\\.0\\..*"),
                                      {"gpt2_all", ".*\\.wpe\\..*"},
                                      {"gpt2_all", ".*wte.*"},
                                      {"llama_all", ".*(norm|bias|head).*"},
                                      {"gpt2_all", ".*(ln_1|attn|\\.bias).*"},
                                      {"qwen3_all",
                                       ".*"
                                       "(q_norm|down_proj).*"},
                                      {"phi_all", "lm_head.*|.*fc2.*"},
                                      {"gpt2_all", "transformer\\.(w|h).*"}}) {
    auto const& c = case_of(name);
    auto const tokens = c.tokens();
    model::Batch const batch{tokens.data(), c.rows, c.sequence};
    for (auto const dtype : {Dtype::fp32, Dtype::bf16}) {
      model::ModelOptions options = dtype;
      FamilyModel all(c, options);
      options.frozen_parameters = pattern;
      FamilyModel some(c, options);
      for (int micro_step = 0; micro_step < 2; ++micro_step)
        ASSERT_EQ(all.train(batch, {}), some.train(batch, {.recompute = Recompute::block}));
      std::size_t frozen = 0, trained = 0;
      some.params.for_each([&](int unit, std::size_t p, memory::ParameterSpec const& spec) {
        ++(spec.trains ? trained : frozen);
        if (spec.trains) {
          EXPECT_EQ(some.params.gradient_values(unit, p), all.params.gradient_values(unit, p))
              << pattern << ": " << spec.name;
        }
      });
      EXPECT_GT(frozen, 0u) << pattern;
      EXPECT_GT(trained, 0u) << pattern;
    }
  }
}

TEST(FrozenParameters, PatternsMustMatch) {
  auto const& c = case_of("gpt2_all");
  auto const refusal = [&](char const* pattern) {
    model::ModelOptions options = Dtype::fp32;
    options.frozen_parameters = pattern;
    try {
      (void)model::make_model(c.config, options);
    } catch (ConfigError const& e) {
      return std::string(e.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(refusal("wte"), HasSubstr("matches no parameter; it must match complete names, such "
                                        "as transformer.wte.weight"));
  EXPECT_THAT(refusal("["), HasSubstr("is not a regular expression"));
}

}  // namespace
