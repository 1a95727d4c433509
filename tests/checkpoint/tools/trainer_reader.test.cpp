// Checkpoints that transformers' Trainer wrote (tests/oracles/trainer_checkpoints.py), of families
// whose optimizers number the parameters in different orders.
#include "tools/detail/trainer_reader.hpp"

#include <xxhash.h>

#include "fixture.hpp"
#include "tessera/model/families/registry.hpp"

namespace tessera::checkpoint::detail {
namespace {

namespace fs = std::filesystem;

using testing::HasSubstr;

fs::path const data = fs::path(TESSERA_TEST_DATA) / "checkpoint/data/trainer";

TrainingSource read(fs::path const& directory) {
  auto const model = model::make_model(ConfigTree::read(directory / "config.json"), Dtype::fp32);
  return read_trainer(directory, trainer_record(directory).value(), model->units(),
                      CrcCheck::everything);
}

class TrainerFamilies : public testing::TestWithParam<char const*> {};

TEST_P(TrainerFamilies, EveryParameterHasItsStates) {
  auto const expected = ConfigTree::read(data / GetParam() / "expected.json");
  auto source = read(data / GetParam());
  EXPECT_EQ(source.state_names, (std::vector<std::string>{"fp32", "exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(source.tensors.size() * 3, expected.at("xxh3").size());
  for (std::size_t t = 0; t < source.tensors.size(); ++t)
    for (std::size_t s = 1; s < source.state_names.size(); ++s) {
      std::vector<float> values(static_cast<std::size_t>(source.tensors[t].numel));
      source.read(t, s, 0, source.tensors[t].numel, values.data());
      std::string const name = concat(source.state_names[s], "/", source.tensors[t].name);
      auto const sum = XXH3_64bits(values.data(), values.size() * sizeof(float));
      EXPECT_EQ(sum, std::stoull(expected.at("xxh3").at(name).as_string(), nullptr, 16)) << name;
    }
  EXPECT_EQ(source.global_steps, expected.at("global_steps").as_int());
  EXPECT_EQ(source.optimizer_steps, source.global_steps);
  EXPECT_EQ(source.skipped_steps, 0);
  EXPECT_EQ(source.samples, expected.at("samples").as_int());
}

INSTANTIATE_TEST_SUITE_P(Families, TrainerFamilies,
                         testing::Values("gpt2", "qwen2", "qwen2_older", "qwen3", "olmo2", "phi3",
                                         "gpt_neox"),
                         [](auto const& info) { return std::string(info.param); });

class TrainerFiles : public testing::Test {
 protected:
  void SetUp() override { copy("gpt2"); }
  void copy(std::string const& family) {
    fs::remove_all(checkpoint_);
    fs::copy(data / family, checkpoint_);
  }
  void take_optimizer_of(std::string const& family) {
    fs::copy_file(data / family / "optimizer.pt", checkpoint_ / "optimizer.pt",
                  fs::copy_options::overwrite_existing);
  }
  void expect_refused(std::string const& reason, std::string const& more) {
    EXPECT_THAT([&] { read(checkpoint_); }, testing::ThrowsMessage<DataError>(testing::AllOf(
                                                HasSubstr(reason), HasSubstr(more))));
  }
  test::ScratchDirectory scratch_;
  fs::path checkpoint_ = scratch_ / "checkpoint-4";
};

TEST_F(TrainerFiles, AnotherOptimizerIsNamedByItsStates) {
  take_optimizer_of("adafactor");
  expect_refused("exp_avg_sq_row", "move optimizer.pt and trainer_state.json out");
}

TEST_F(TrainerFiles, StatesOfAnotherModelAreRefused) {
  take_optimizer_of("gpt_neox");
  expect_refused("the Trainer's for this model have 6 and 10", "move optimizer.pt");
  copy("olmo2");
  take_optimizer_of("qwen3");
  expect_refused("model.layers.0.self_attn.q_proj.weight has [8, 8]", "shape [16, 8]");
}

TEST_F(TrainerFiles, AScheduleAheadOfTheStepIsOfAnotherSave) {
  test::write_file(checkpoint_ / "trainer_state.json", R"({"global_step": 3, "loss": NaN})");
  expect_refused("the schedule is at step 4", "different saves");
}

TEST_F(TrainerFiles, ShardsOfFsdpAndAdaptersAreNamed) {
  fs::create_directory(checkpoint_ / "optimizer_0");
  expect_refused("FSDP", "save_model");
  fs::remove(checkpoint_ / "optimizer_0");
  fs::remove(checkpoint_ / "model.safetensors");
  test::write_file(checkpoint_ / "adapter_config.json", "{}");
  expect_refused("PEFT", "--adapter");
}

/// Each process writes its own rng_state; an overflow does not advance the schedule.
TEST_F(TrainerFiles, ProcessesAndSkippedStepsCount) {
  for (auto const* name : {"rng_state_0.pth", "rng_state_1.pth"})
    test::write_file(checkpoint_ / name, "");
  test::write_file(checkpoint_ / "trainer_state.json",
                   R"({"global_step": 5, "train_batch_size": 2})");
  auto const source = read(checkpoint_);
  EXPECT_EQ(source.samples, 5 * 2 * 3 * 2);
  EXPECT_EQ(source.config.at("train_batch_size").as_int(), 2 * 3 * 2);
  EXPECT_EQ(source.global_steps, 5);
  EXPECT_EQ(source.skipped_steps, 1);
}

}  // namespace
}  // namespace tessera::checkpoint::detail
