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

TEST(LoraArguments, SayWhatTrainsNextToTheAdapters) {
  auto a = adapting();
  a.use_dora = true;
  a.init_lora_weights = "gaussian";
  a.lora_modules_to_save = {"embed_tokens,lm_head"};
  auto const untied = *train::lora_options(a, small_llama());
  EXPECT_TRUE(untied.magnitudes);
  EXPECT_EQ(untied.init, model::LoraInit::gaussian);
  EXPECT_THAT(untied.modules_to_save, ElementsAre("embed_tokens", "lm_head"));
  EXPECT_FALSE(untied.ties_saved_modules);
  auto const tied = *train::lora_options(a, small_llama().set("tie_word_embeddings", true));
  EXPECT_TRUE(tied.ties_saved_modules);
  auto const written = model::adapter_config(tied, "");
  EXPECT_EQ(written.at("use_dora"), ConfigTree(true));
  EXPECT_EQ(written.at("init_lora_weights"), ConfigTree("gaussian"));
  EXPECT_EQ(written.at("ensure_weight_tying"), ConfigTree(true));
  EXPECT_EQ(model::read_adapter_config(written), tied);
  a.lora_modules_to_save = {"lm_head"};
  EXPECT_THAT(
      train::lora_options(a, small_llama().set("tie_word_embeddings", true))->modules_to_save,
      ElementsAre("lm_head", "model.embed_tokens"));
}

/// A unit with an adapted matrix [3, 4] or [4, 3], whose elements are their indices.
TEST(Magnitudes, AreTheNormsOfTheRowsAsTheyAreKept) {
  for (bool const transposed : {false, true}) {
    memory::UnitSpec unit{"block", {}};
    for (auto const& [name, shape] :
         {std::pair<std::string, std::vector<std::int64_t>>{
              "fc.weight",
              transposed ? std::vector<std::int64_t>{4, 3} : std::vector<std::int64_t>{3, 4}},
          {"base_model.model.fc.lora_A.weight", {1, 4}},
          {"base_model.model.fc.lora_B.weight", {3, 1}},
          {"base_model.model.fc.lora_magnitude_vector", {3}}}) {
      memory::ParameterSpec spec;
      spec.name = name;
      spec.shape = shape;
      unit.parameters.push_back(spec);
    }
    std::vector<memory::UnitSpec> const units{{"embedding", {}}, unit, {"head", {}}};
    auto const values = [](zero::UnitIndex, int p, std::int64_t first, std::int64_t numel,
                           float* out) {
      for (std::int64_t i = 0; i < numel; ++i)
        out[i] = static_cast<float>(first + i) + 0.3f * static_cast<float>(p);
    };
    for (auto const init : {model::LoraInit::uniform, model::LoraInit::nonzero})
      for (auto const dtype : {Dtype::fp32, Dtype::bf16}) {
        model::LoraOptions const lora{
            .rank = 1, .alpha = 2.0, .magnitudes = true, .init = init, .transposed = transposed};
        auto const fill = train::with_magnitudes(values, units, lora, {.dtype = dtype});
        float out[2];
        fill(zero::UnitIndex(1), 3, 1, 2, out);  // a shard: the last two of three
        for (std::int64_t o = 1; o < 3; ++o) {
          double squares = 0.0;
          for (std::int64_t i = 0; i < 4; ++i) {
            auto const w = static_cast<float>(transposed ? i * 3 + o : o * 4 + i);
            double v =
                dtype == Dtype::bf16 ? static_cast<double>(static_cast<float>(bfloat16(w))) : w;
            if (init == model::LoraInit::nonzero)
              v += 2.0 * (static_cast<double>(i) + 0.3f) * (static_cast<double>(o) + 0.6f);
            squares += v * v;
          }
          EXPECT_NEAR(out[o - 1], std::sqrt(squares), 1e-5 * std::sqrt(squares));
        }
        float plain = 0.0f;
        fill(zero::UnitIndex(1), 0, 2, 1, &plain);
        EXPECT_EQ(plain, 2.0f) << "other parameters keep their values";
      }
    model::LoraOptions const lora{.rank = 1, .magnitudes = true, .transposed = transposed};
    auto const coded = train::with_magnitudes(
        values, units, lora,
        {.codes = zero::QuantizedBase{.is_int8 = true, .transposed = transposed}});
    float norm = 0.0f;
    coded(zero::UnitIndex(1), 3, 2, 1, &norm);
    double const exact =
        transposed ? std::sqrt(4.0 + 25 + 64 + 121) : std::sqrt(64.0 + 81 + 100 + 121);
    EXPECT_NEAR(norm, exact, 0.01 * exact);
    EXPECT_NE(norm, static_cast<float>(exact)) << "the norm of the codes";
  }
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
