/// tessera merge against PEFT's merge_and_unload(), from files of tests/oracles/peft_merge.py.
#include <gmock/gmock.h>

#include "command_output.hpp"
#include "commands.hpp"
#include "scratch_files.hpp"
#include "tessera/checkpoint/interchange/model_weights.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/model/families/registry.hpp"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

std::vector<float> read(checkpoint::ModelWeights const& weights,
                        memory::ParameterSpec const& spec) {
  std::vector<float> out(static_cast<std::size_t>(spec.numel()));
  weights.fill(spec, 0, spec.numel(), out.data());
  return out;
}

/// Compares @p merged with PEFT's, and counts the parameters that differ from the base.
void expect_equal_models(fs::path const& data, fs::path const& merged, int expected) {
  auto const config = ConfigTree::read(data / "merged/config.json");
  checkpoint::ModelWeights const ours(merged), theirs(data / "merged"), base(data / "base");
  auto const units = model::make_model(config, Dtype::fp32)->units();
  EXPECT_EQ(ours.require(units), "");
  int changed = 0;
  for (auto const& unit : units)
    for (auto const& spec : unit.parameters) {
      auto const a = read(ours, spec), b = read(theirs, spec);
      for (std::size_t i = 0; i < a.size(); ++i)
        ASSERT_NEAR(a[i], b[i], 1e-6) << spec.name << ", element " << i;
      changed += base.shape_of(spec) != spec.shape || read(base, spec) != a;
    }
  EXPECT_EQ(changed, expected);
}

/// The embedding had four tokens more than the base when the adapter was trained: PEFT has saved it
/// and the head with the adapter.
TEST(MergeOfPeft, TakesTheEmbeddingsThatHadGrown) {
  ScratchFiles const files;
  fs::path const data = fs::path(TESSERA_TEST_DATA) / "checkpoint/data/peft_merge",
                 merged = fs::path(files.directory()) / "merged";
  auto const text = test::output_of(
      add_merge, {"merge", (data / "base").string(), (data / "adapter").string(), merged.string()});
  EXPECT_THAT(text, testing::HasSubstr("12 tensors with 2 changed by adapters"));
  auto const config = ConfigTree::read(data / "merged/config.json");
  EXPECT_EQ(ConfigTree::read(merged / "config.json").at("vocab_size").as_int(),
            config.at("vocab_size").as_int());
  expect_equal_models(data, merged, 4);
}

/// Llama with untied embedding and head; GPT-2, whose matrices are transposed.
TEST(MergeOfPeft, MagnitudesAndModulesThatTrainedInFull) {
  for (auto const& [name, changed] :
       {std::pair("peft_merge_dora_llama", 4), {"peft_merge_dora_gpt2", 7}}) {
    ScratchFiles const files;
    fs::path const data = fs::path(TESSERA_TEST_DATA) / "checkpoint/data" / name,
                   merged = fs::path(files.directory()) / "merged";
    test::output_of(add_merge, {"merge", (data / "base").string(), (data / "adapter").string(),
                                merged.string()});
    expect_equal_models(data, merged, changed);
  }
}

}  // namespace
}  // namespace tessera::cli
