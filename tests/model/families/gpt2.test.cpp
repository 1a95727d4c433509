/// GPT-2 against PyTorch: loss, logits and the gradient of every parameter of the stored cases.
#include <gtest/gtest.h>

#include "gpt2_case.hpp"
#include "stored_checks.hpp"

namespace {

using namespace tessera;
using namespace tessera::test;

class Gpt2 : public testing::TestWithParam<Gpt2Case> {};
INSTANTIATE_TEST_SUITE_P(Stored, Gpt2, testing::ValuesIn(gpt2_cases()),
                         [](auto const& info) { return info.param.name; });

TEST_P(Gpt2, TrainingMatchesTorch) {
  Bench b(GetParam().config, Dtype::fp32);
  expect_training_matches(GetParam(), b);
}

TEST_P(Gpt2, EvaluationAndLogitsMatchTorch) {
  auto const& c = GetParam();
  Bench b(c.config, Dtype::fp32);
  expect_evaluation_matches(c, b);
  EXPECT_EQ(b.params.most_leased, c.config.get_bool("tie_word_embeddings", true) ? 2 : 1)
      << "the head and what it is tied to";
}

TEST_P(Gpt2, Bf16IsAsGoodAsTorch) {
  expect_no_worse_than_torch(GetParam(), Dtype::bf16, generator_weights());
}
TEST_P(Gpt2, Fp16IsAsGoodAsTorch) {
  expect_no_worse_than_torch(GetParam(), Dtype::fp16, generator_weights());
}

}  // namespace
