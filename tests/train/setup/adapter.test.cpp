#include "tessera/train/setup/adapter.hpp"

#include <gmock/gmock.h>

#include "mpi_test.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/core/error.hpp"
#include "tessera/model/families/registry.hpp"

namespace {

using namespace tessera;
using testing::ElementsAre;
using testing::HasSubstr;

config::TrainingArguments adapting() {
  config::TrainingArguments out;
  out.use_peft_lora = true;
  return out;
}

ConfigTree small_llama() {
  return model::apply_overrides(model::default_config("llama"),
                                "hidden_size=16,intermediate_size=20,num_hidden_layers=2,num_"
                                "attention_heads=4,vocab_size=37");
}

TEST(LoraArguments, GiveNamesOrAnExpression) {
  auto a = adapting();
  EXPECT_THAT(train::lora_options(a, small_llama())->targets, ElementsAre("q_proj", "v_proj"));
  a.lora_target_modules = {"q_proj,k_proj", "up_proj"};
  EXPECT_THAT(train::lora_options(a, small_llama())->targets,
              ElementsAre("q_proj", "k_proj", "up_proj"));
  a.lora_target_modules = {".*\\.(q|k)_proj"};
  EXPECT_EQ(train::lora_options(a, small_llama())->pattern, ".*\\.(q|k)_proj");
  EXPECT_TRUE(train::lora_options(a, small_llama())->targets.empty());
  EXPECT_FALSE(train::lora_options({}, small_llama()).has_value());
  EXPECT_TRUE(train::lora_options(adapting(), model::default_config("gpt2"))->transposed);
}

TEST(LoraArguments, TargetsWithoutALayerAreFound) {
  auto a = adapting();
  a.lora_target_modules = {"q_proj", "c_attn", "all-linear"};
  model::ModelOptions options = Dtype::fp32;
  options.lora = train::lora_options(a, small_llama());
  auto const lm = model::make_model(small_llama(), options);
  EXPECT_THAT(train::unmatched_targets(*options.lora, lm->units()), ElementsAre("c_attn"));
}

TEST(Combine, CountsTrainedParametersOnly) {
  std::vector<memory::UnitSpec> units{{"u", {{}, {}, {}, {}}}};
  for (std::size_t p : {0u, 2u}) units[0].parameters[p].trains = false;
  std::string calls;
  auto const note = [&calls](char which) {
    return [&calls, which](zero::UnitIndex, int p, std::int64_t, std::int64_t, float*) {
      calls += which + std::to_string(p);
    };
  };
  auto const fill = train::combine(units, note('t'), note('f'));
  for (int p = 0; p < 4; ++p) fill(memory::first_unit, p, 0, 0, nullptr);
  EXPECT_EQ(calls, "f0t0f2t1");
}

/// The sum is the same for every cut, and no other for other values, places or names.
TEST(FrozenChecksum, IsTheSameForEveryPartition) {
  auto const comm = comm::make_mpi(test::session(), std::chrono::seconds(60));
  std::vector<float> values(100);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * i) - 50.0f;
  auto const of = [&](std::string const& name, int cuts, std::int64_t shift) {
    train::FrozenChecksum sum;
    for (int k = 0; k < cuts; ++k)
      if (k % comm->size() == comm->rank()) {
        std::int64_t const begin = 100 * k / cuts, end = 100 * (k + 1) / cuts;
        sum.add(name, begin + shift, end - begin, values.data() + begin);
      }
    return sum.total(*comm);
  };
  auto const want = of("wte", 1, 0);
  EXPECT_EQ(want, of("wte", 4, 0));
  EXPECT_EQ(want, of("wte", 7, 0));
  EXPECT_NE(want, of("wpe", 1, 0));
  EXPECT_NE(want, of("wte", 1, 1));
  values[17] += 1.0f;
  EXPECT_NE(want, of("wte", 4, 0));
}

std::string refusal(ConfigTree const& saved, std::optional<model::LoraOptions> const& lora) {
  try {
    train::check_adapters(saved, lora, "step_1");
  } catch (ConfigError const& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(FrozenRecord, SaysWhatACheckpointBelongsTo) {
  zero::PartitionPlan const plan({{"u", {{"wte", {8, 2}, {}, true, {}}}}}, 1);
  EXPECT_TRUE(train::frozen_record(zero::PartitionPlan({}, 1), "0", {}, "").is_null());
  model::LoraOptions const lora{.rank = 4, .alpha = 8};
  auto const saved = train::frozen_record(plan, "abc", lora, "base"),
             plain = train::frozen_record(plan, "abc", {}, "");
  EXPECT_EQ(saved.at("parameters").as_int(), 16);
  EXPECT_EQ(refusal(saved, lora), "nothing was thrown");
  EXPECT_THAT(refusal(saved, std::nullopt), HasSubstr("has the adapters of a run"));
  EXPECT_THAT(refusal(plain, lora), HasSubstr("is of a run without adapters"));
  EXPECT_THAT(refusal(saved, model::LoraOptions{.rank = 4, .alpha = 4}),
              HasSubstr("scaled by 2; those of this run have r 4 and are scaled by 1"));
  EXPECT_NO_THROW(train::check_frozen(saved, plain, "step_1"));
  EXPECT_THROW(train::check_frozen(saved, {}, "step_1"), ConfigError);
  EXPECT_NO_THROW(train::check_frozen({}, {}, "step_1"));
}

}  // namespace
