#include "tessera/model/layers/documents.hpp"

#include "fake_device.hpp"
#include "family_suite.hpp"

namespace tessera::model {
namespace {

using testing::HasSubstr;
using Ints = std::vector<std::int32_t>;

TEST(Documents, BeginAfterTheirLastToken) {
  Ints const tokens{1, 9, 2, 3, 9, 9, 4, 5};
  TokenRows const rows{tokens.data(), 2, 4};
  Ints starts(tokens.size()), positions(tokens.size());
  find_documents(rows, 9, starts.data());
  find_positions(rows, 9, positions.data());
  EXPECT_EQ(starts, (Ints{0, 0, 2, 2, 0, 1, 2, 2}));
  EXPECT_EQ(positions, (Ints{0, 1, 0, 1, 0, 0, 0, 1}));
}

TEST(Documents, MaskedTokensAreNotPredicted) {
  Ints const tokens{1, 9, 2, 9, 9, 9, 4, 5};
  TokenRows const rows{tokens.data(), 2, 4};
  EXPECT_EQ(count_predictions(rows, {.eod_token = 9}), 6);
  EXPECT_EQ(count_predictions(rows, {.eod_token = 9, .eod_mask_loss = true}), 3)
      << "the last token of a row predicts nothing anyway";
}

using Packed = test::FamilyTest;
INSTANTIATE_TEST_SUITE_P(Stored, Packed, testing::ValuesIn(test::read_cases("packed")),
                         [](auto const& info) { return info.param.name; });

TEST_P(Packed, TrainingMatchesTransformers) {
  test::FamilyModel model(GetParam());
  test::expect_training_matches(GetParam(), model);
}

/// The rules of a device, with inputs that pass through pinned memory.
TEST_P(Packed, TrainingOnAStreamMatchesTransformers) {
  test::FakeDevice device;
  test::FamilyModel model(GetParam());
  model.queue = memory::make_stream_queue("compute");
  test::expect_training_matches(GetParam(), model);
}

TEST_P(Packed, EvaluationMatchesTransformers) {
  auto const& c = GetParam();
  test::FamilyModel model(c);
  auto const tokens = c.tokens();
  Batch const batch{tokens.data(), c.rows, c.sequence};
  EXPECT_NEAR(model.evaluate(batch) / static_cast<double>(c.predictions()), c.loss, 2e-6 * c.loss);
}

TEST_P(Packed, TenStepsMatchTransformers) { test::expect_trajectory(GetParam()); }

TEST_P(Packed, PassesAgree) {
  for (auto const dtype : {Dtype::fp32, Dtype::bf16}) test::expect_passes_agree(GetParam(), dtype);
}

TEST_P(Packed, NeedsTheMemoryThatIsPlanned) { test::expect_memory_as_planned(GetParam()); }

/// A prompt is one document, whatever tokens it has.
TEST_P(Packed, GenerationKnowsNoDocuments) {
  auto c = GetParam();
  auto const tokens = c.tokens();
  Batch const batch{tokens.data(), c.rows, c.sequence};
  auto const packed = test::FamilyModel(c).next_token_logits(batch);
  c.entry.erase("documents");
  EXPECT_EQ(packed, test::FamilyModel(c).next_token_logits(batch));
}

TEST(PackedRotary, RefusesFrequenciesOfTheLongestDocument) {
  auto c = test::family_cases("llama").front();
  for (auto const& other : test::family_cases("llama"))
    if (other.name == "dynamic_rope") c = other;
  ASSERT_EQ(c.name, "dynamic_rope");
  ModelOptions options = Dtype::fp32;
  options.documents = {.eod_token = 0, .reset_position_ids = true};
  try {
    make_model(c.config, options);
    FAIL() << "nothing was thrown";
  } catch (ConfigError const& e) {
    EXPECT_THAT(e.what(), HasSubstr("rope_type dynamic with reset_position_ids"));
  }
}

}  // namespace
}  // namespace tessera::model
