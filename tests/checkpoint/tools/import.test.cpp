// Checkpoints that DeepSpeed 0.19.8 wrote (tests/oracles/deepspeed_checkpoints.py): every element
// of master weights and states is what the running engine had.
#include <xxhash.h>

#include "fixture.hpp"
#include "tessera/checkpoint/interchange/safetensors_reader.hpp"
#include "tessera/checkpoint/save/restore.hpp"
#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/checkpoint/tools/import.hpp"
#include "tessera/checkpoint/tools/verify.hpp"
#include "tessera/model/families/registry.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

using test::ScratchDirectory;
using testing::HasSubstr;

fs::path const data = fs::path(TESSERA_TEST_DATA) / "checkpoint/data/deepspeed";

std::string hash(float const* values, std::int64_t numel) {
  char text[17];
  std::snprintf(
      text, sizeof text, "%016llx",
      static_cast<unsigned long long>(XXH3_64bits(values, static_cast<std::size_t>(numel) * 4)));
  return text;
}

ImportOptions options_for(fs::path const& source, fs::path const& checkpoints) {
  ImportOptions options;
  options.source = source;
  options.checkpoints = checkpoints;
  options.model_config = ConfigTree::read(*find_model_config(source));
  options.units = model::make_model(options.model_config, Dtype::fp32)->units();
  return options;
}

/// "state/tensor" -> hash of what a checkpoint restores to.
std::map<std::string, std::string> restored(fs::path const& checkpoint,
                                            std::vector<memory::UnitSpec> const& units) {
  zero::PartitionPlan const plan(units, 1);
  auto const manifest = read_manifest(checkpoint);
  auto const& names = manifest.states;
  test::RankState state(plan, 0, names);
  restore_rank(manifest, plan, first_rank, state.views());
  std::map<std::string, std::string> out;
  for (std::size_t s = 0; s < names.size(); ++s)
    for (auto const& extent : plan.extents(first_rank)) {
      auto const& slot =
          plan.unit(extent.unit).parameters[static_cast<std::size_t>(extent.parameter)];
      out[concat(names[s], "/", slot.name)] =
          hash(state.memory(s).data() + extent.partition_offset.value(), extent.numel);
    }
  return out;
}

/// "fp32" and the states that the running optimizer had.
std::vector<std::string> states_of(ConfigTree const& expected) {
  std::vector<std::string> out{"fp32"};
  for (std::string const state : {"exp_avg", "exp_avg_sq", "momentum_buffer", "sum"})
    for (auto const& [name, sum] : expected.at("xxh3").as_object())
      if (name.starts_with(state + "/") && out.back() != state) out.push_back(state);
  return out;
}

class DeepSpeed : public testing::TestWithParam<char const*> {
 protected:
  fs::path source_ = data / GetParam();
  ConfigTree expected_ = ConfigTree::read(source_ / "expected.json");
  ScratchDirectory scratch_;

  /// transformers 5 calls the head of GPT-NeoX lm_head in memory, where DeepSpeed finds it.
  std::string name_in_files(std::string const& name) const {
    std::size_t const head = name.find("/lm_head.weight");
    bool const neox = source_.filename() == "neox_z2_w2" && head != std::string::npos;
    return neox ? name.substr(0, head) + "/embed_out.weight" : name;
  }
};

TEST_P(DeepSpeed, EveryElementIsImported) {
  auto options = options_for(source_, scratch_ / "checkpoints");
  options.max_shard_bytes = 5'000;  // several shards
  auto const report = import_checkpoint(options);
  EXPECT_EQ(report.step, expected_.at("global_steps").as_int());
  auto const manifest = read_manifest(report.checkpoint);
  EXPECT_GE(manifest.shards.size(), 3u);
  EXPECT_TRUE(verify(report.checkpoint).ok());
  auto const got = restored(report.checkpoint, options.units);
  std::size_t compared = 0;
  for (auto const& [name, sum] : expected_.at("xxh3").as_object()) {
    std::string const in_files = name_in_files(name);
    ASSERT_TRUE(got.contains(in_files)) << name;
    EXPECT_EQ(got.at(in_files), sum.as_string()) << name;
    ++compared;
  }
  std::size_t const frozen = report.notes.empty() ? 0 : 2;
  EXPECT_EQ(compared, got.size() - (manifest.states.size() - 1) * frozen);
  EXPECT_EQ(got.size(), manifest.states.size() * manifest.tensors.size());
  EXPECT_EQ(manifest.states, states_of(expected_));
}

TEST_P(DeepSpeed, CountersAndScalerAreImported) {
  auto const options = options_for(source_, scratch_ / "checkpoints");
  auto const report = import_checkpoint(options);
  auto const manifest = read_manifest(report.checkpoint);
  EXPECT_EQ(manifest.samples, expected_.at("global_samples").as_int());
  ConfigTree const& state = manifest.trainer_state;
  EXPECT_EQ(state.at("optimizer_steps").as_int(), expected_.at("adam_step").as_int());
  EXPECT_EQ(state.at("applied_steps").as_int(),
            expected_.at("global_steps").as_int() - expected_.at("skipped_steps").as_int());
  if (auto const* scaler = expected_.find("scaler")) {
    for (auto const* key : {"scale", "iteration", "last_overflow", "hysteresis"})
      EXPECT_EQ(state.at("loss_scaler").at(key).as_double(), scaler->at(key).as_double()) << key;
  }
}

TEST_P(DeepSpeed, ConsolidationHasTheTensorsOfZeroToFp32) {
  ConsolidateOptions options;
  options.checkpoint = source_;
  options.output = scratch_ / "model.safetensors";
  auto const report = consolidate(options);
  EXPECT_THAT(report.format, HasSubstr("DeepSpeed"));
  SafetensorsReader const model(options.output);
  std::size_t weights = 0;
  for (auto const& [name, sum] : expected_.at("xxh3").as_object()) {
    if (name.rfind("fp32/", 0) != 0) continue;
    auto const* entry = model.find(name.substr(5));
    ASSERT_NE(entry, nullptr) << name;
    std::vector<float> values(static_cast<std::size_t>(entry->numel));
    model.read_as_fp32(name.substr(5), 0, entry->numel, values.data());
    EXPECT_EQ(hash(values.data(), entry->numel), sum.as_string()) << name;
    ++weights;
  }
  EXPECT_EQ(model.entries().size(), weights);
  if (auto const* names = expected_.find("zero_to_fp32_names")) {
    for (auto const& name : names->as_array())
      EXPECT_TRUE(name.as_string() == "lm_head.weight" || model.find(name.as_string()))
          << name.as_string();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, DeepSpeed,
    testing::Values("z0_w2", "z0_w1_fused", "z0_w2_fp16", "z0_w2_bf16", "z1_w1",
                    "z1_w2_bf16_wrapper", "z1_w2_frozen", "z2_w3_groups", "z2_w2_fp16",
                    "z2_w2_elastic", "z2_w2_aligned", "z2_w2_legacy", "z3_w2_bf16", "z3_w3",
                    "universal_z2", "universal_z3", "sgd_z0_w2", "sgd_z1_w2", "sgd_z2_w2",
                    "sgd_z3_w2", "sgd_plain_z0_w1", "sgd_plain_z2_w2", "sgd_plain_z3_w2",
                    "adagrad_z0_w2", "adagrad_z2_w2", "adagrad_z3_w2", "lamb_z0_w2",
                    "lion_z2_w2_offload", "adagrad_z2_w2_offload", "bf16_masters_z2_w2",
                    "bf16_masters_z3_w2", "llama_z3_w2", "bigcode_z1_w2_bf16", "neox_z2_w2"),
    [](auto const& info) { return std::string(info.param); });

/// In fp32 there are no master weights to tell parameters of one shape apart, and a frozen one
/// leaves several ways.
TEST(Import, WithoutNamesTheOptimizerStateMustFitInOneWay) {
  ScratchDirectory const scratch;
  auto const options = options_for(data / "z0_w1_groups", scratch / "checkpoints");
  EXPECT_THAT([&] { import_checkpoint(options); },
              testing::ThrowsMessage<DataError>(HasSubstr("more than one way")));
  ConsolidateOptions weights;
  weights.checkpoint = data / "z0_w1_groups";
  weights.output = scratch / "model";
  EXPECT_EQ(consolidate(weights).tensors, 16);
  auto again = options_for(data / "z0_w1_groups", scratch / "checkpoints");
  again.source = scratch / "model";
  EXPECT_FALSE(import_checkpoint(again).has_optimizer_states);
}

/// ds_to_universal converts the states of Adam only; files of other optimizers in its form are made
/// here from those of an AdamW run: the moments take the names of the other's states.
struct OtherStates {
  std::string first, second;  ///< new names of exp_avg and exp_avg_sq; empty: absent
  std::vector<std::string> states;
};

void rename_states(fs::path const& parameter, OtherStates const& other) {
  for (auto const& [from, to] : {std::pair{"exp_avg", other.first}, {"exp_avg_sq", other.second}}) {
    fs::path const file = parameter / concat(from, ".pt");
    if (!fs::exists(file)) continue;
    if (to.empty())
      fs::remove(file);
    else if (to != from)
      fs::rename(file, parameter / concat(to, ".pt"));
  }
}

TEST(Import, OtherOptimizersKeepTheirStates) {
  auto const expected = ConfigTree::read(data / "universal_z2/expected.json");
  for (auto const& other : std::vector<OtherStates>{
           {"momentum_buffer", "", {"fp32", "momentum_buffer"}},            // SGD
           {"exp_avg", "", {"fp32", "exp_avg"}},                            // Lion
           {"", "sum", {"fp32", "sum"}},                                    // Adagrad
           {"", "square_avg", {"fp32", "square_avg"}},                      // RMSprop
           {"grad_avg", "square_avg", {"fp32", "square_avg", "grad_avg"}},  // centered
           {"exp_avg", "exp_inf", {"fp32", "exp_avg", "exp_inf"}}}) {       // Adamax
    ScratchDirectory const scratch;
    fs::copy(data / "universal_z2", scratch / "other", fs::copy_options::recursive);
    for (auto const& entry : fs::directory_iterator(scratch / "other/step3_universal/zero"))
      if (entry.is_directory()) rename_states(entry.path(), other);
    auto const options = options_for(scratch / "other", scratch / "checkpoints");
    auto const report = import_checkpoint(options);
    EXPECT_TRUE(report.has_optimizer_states);
    EXPECT_EQ(read_manifest(report.checkpoint).states, other.states);
    auto const got = restored(report.checkpoint, options.units);
    std::size_t compared = 0;
    for (auto const& [name, sum] : expected.at("xxh3").as_object()) {
      auto const slash = name.find('/');
      std::string const state = name.substr(0, slash);
      std::string const renamed = state == "exp_avg"      ? other.first
                                  : state == "exp_avg_sq" ? other.second
                                                          : "";
      if (renamed.empty()) continue;
      EXPECT_EQ(got.at(concat(renamed, name.substr(slash))), sum.as_string()) << name;
      ++compared;
    }
    EXPECT_EQ(compared, 16u * (other.states.size() - 1));
  }
}

TEST(Import, UniversalWeightsWithoutStatesGetNone) {
  ScratchDirectory const scratch;
  fs::copy(data / "universal_z2", scratch / "plain", fs::copy_options::recursive);
  for (auto const& entry : fs::recursive_directory_iterator(scratch / "plain"))
    if (entry.path().filename().string().rfind("exp_avg", 0) == 0) fs::remove(entry.path());
  auto const report = import_checkpoint(options_for(scratch / "plain", scratch / "checkpoints"));
  EXPECT_FALSE(report.has_optimizer_states);
  EXPECT_EQ(read_manifest(report.checkpoint).states, std::vector<std::string>{"fp32"});
  EXPECT_THAT(report.notes, testing::ElementsAre(HasSubstr("starts them at zero")));
}

TEST(Import, FilesOfTheTrainerThatAreNotReadAreNamed) {
  ScratchDirectory const scratch;
  fs::copy(data / "bin_model", scratch / "checkpoint-4");
  test::write_file(scratch / "checkpoint-4/scheduler.pt", "schedule");
  test::write_file(scratch / "checkpoint-4/trainer_state.json", R"({"global_step": 4})");
  auto const report =
      import_checkpoint(options_for(scratch / "checkpoint-4", scratch / "checkpoints"));
  EXPECT_THAT(
      report.notes,
      testing::ElementsAre(HasSubstr("scheduler.pt, trainer_state.json (step 4) are not read")));
}

/// A checkpoint that transformers' Trainer wrote (tests/oracles/trainer_checkpoints.py).
TEST(Import, ACheckpointOfTheTrainerKeepsStatesAndPosition) {
  ScratchDirectory const scratch;
  fs::path const source = fs::path(TESSERA_TEST_DATA) / "checkpoint/data/trainer/gpt2";
  auto const expected = ConfigTree::read(source / "expected.json");
  auto const options = options_for(source, scratch / "checkpoints");
  auto const report = import_checkpoint(options);
  EXPECT_THAT(report.notes, testing::IsEmpty());
  EXPECT_TRUE(report.has_optimizer_states);
  auto const manifest = read_manifest(report.checkpoint);
  EXPECT_EQ(manifest.states, (std::vector<std::string>{"fp32", "exp_avg", "exp_avg_sq"}));
  auto const got = restored(report.checkpoint, options.units);
  auto const& sums = expected.at("xxh3").as_object();
  EXPECT_EQ(got.size(), sums.size());
  for (auto const& [name, sum] : sums) EXPECT_EQ(got.at(name), sum.as_string()) << name;
  EXPECT_EQ(report.step, expected.at("global_steps").as_int());
  EXPECT_EQ(manifest.samples, expected.at("samples").as_int());
  for (auto const* key : {"step", "applied_steps", "optimizer_steps"})
    EXPECT_EQ(manifest.trainer_state.at(key).as_int(), report.step) << key;
  EXPECT_EQ(manifest.trainer_state.at("train_batch_size"), expected.at("train_batch_size"));
  EXPECT_EQ(manifest.trainer_state.at("epoch"),
            ConfigTree::read(source / "trainer_state.json").at("epoch"));
}

TEST(Import, StatesOfTheTrainerThatAreNotReadLeaveNothingBehind) {
  ScratchDirectory const scratch;
  fs::path const trainer = fs::path(TESSERA_TEST_DATA) / "checkpoint/data/trainer";
  fs::copy(trainer / "gpt2", scratch / "checkpoint-4");
  fs::copy_file(trainer / "adafactor/optimizer.pt", scratch / "checkpoint-4/optimizer.pt",
                fs::copy_options::overwrite_existing);
  auto const options = options_for(scratch / "checkpoint-4", scratch / "checkpoints");
  EXPECT_THAT([&] { import_checkpoint(options); },
              testing::ThrowsMessage<DataError>(HasSubstr("exp_avg_sq_row")));
  EXPECT_FALSE(fs::exists(scratch / "checkpoints"));
}

TEST(Import, FrozenParametersCanBeLeftOutOfTheWeights) {
  ScratchDirectory const scratch;
  for (auto const* name : {"z0_w1_fused", "z1_w2_frozen", "z2_w3_groups", "z3_w2_bf16"}) {
    ConsolidateOptions options;
    options.checkpoint = data / name;
    options.output = scratch / concat(name, ".safetensors");
    options.frozen = FrozenParameters::exclude;
    consolidate(options);
    EXPECT_EQ(SafetensorsReader(options.output).entries().size(), 14u) << name;
  }
}

TEST(Import, HuggingFaceWeightsInBothForms) {
  ScratchDirectory const scratch;
  auto const options = options_for(data / "bin_model", scratch / "from_bin");
  auto const report = import_checkpoint(options);
  EXPECT_EQ(report.step, 0);
  EXPECT_EQ(read_manifest(report.checkpoint).states, std::vector<std::string>{"fp32"});
  auto const weights = restored(report.checkpoint, options.units);
  auto const expected = ConfigTree::read(data / "z1_w1/expected.json");
  for (auto const& [name, sum] : expected.at("xxh3").as_object())
    if (name.rfind("fp32/", 0) == 0) {
      EXPECT_EQ(weights.at(name), sum.as_string()) << name;
    }
  ExportOptions exported;
  exported.checkpoint = report.checkpoint;
  exported.output = scratch / "model";
  EXPECT_EQ(export_model(exported).step, 0);
  auto const again =
      import_checkpoint(options_for(scratch / "model", scratch / "from_safetensors"));
  EXPECT_EQ(restored(again.checkpoint, options.units), weights);
}

TEST(Import, ExportWritesTypeAndTokenizer) {
  ScratchDirectory const scratch;
  auto const options = options_for(data / "z3_w3", scratch / "checkpoints");
  import_checkpoint(options);
  std::ofstream(scratch / "tokenizer.json") << "{}";
  ExportOptions exported;
  exported.checkpoint = scratch / "checkpoints";
  exported.output = scratch / "model";
  exported.dtype = "bf16";
  export_model(exported);
  auto const config = ConfigTree::read(scratch / "model/config.json");
  EXPECT_EQ(config.get_string("dtype", config.get_string("torch_dtype", "")), "bfloat16");
  EXPECT_TRUE(fs::exists(scratch / "model/tokenizer.json"));
  EXPECT_EQ(SafetensorsReader(scratch / "model").entries().begin()->second.dtype, "BF16");
  exported.output = scratch / "model.bin";
  EXPECT_THROW(export_model(exported), UsageError);
}

TEST(Import, AnotherModelIsRefused) {
  ScratchDirectory const scratch;
  auto options = options_for(data / "z2_w2_fp16", scratch / "checkpoints");
  options.model_config.set("n_embd", 16);
  options.units = model::make_model(options.model_config, Dtype::fp32)->units();
  EXPECT_THAT([&] { import_checkpoint(options); }, testing::ThrowsMessage<DataError>(testing::AllOf(
                                                       HasSubstr("wte"), HasSubstr("[331, 16]"))));
  options.model_config.set("n_embd", 8).set("n_layer", 2);
  options.units = model::make_model(options.model_config, Dtype::fp32)->units();
  EXPECT_THAT([&] { import_checkpoint(options); },
              testing::ThrowsMessage<DataError>(HasSubstr("transformer.h.1")));
  EXPECT_FALSE(fs::exists(scratch / "checkpoints/latest"));
}

}  // namespace
}  // namespace tessera::checkpoint
