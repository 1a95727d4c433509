#include "detail/deepspeed_zero.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "zero_keys.hpp"

namespace tessera::config::detail {
namespace {

using ::testing::HasSubstr;

TEST(QuantizationKeys, ChooseWhatMovesAsCodes) {
  auto const both = resolved_zero(
      R"("stage": 3, "zero_quantized_weights": true, "zero_quantized_gradients": true)");
  EXPECT_TRUE(both.quantized_weights && both.quantized_gradients && !both.error_feedback);
  EXPECT_EQ(both.origins.at("quantized_weights"), Origin::deepspeed);
  EXPECT_TRUE(describe(both).at("quantized_gradients").at("value").as_bool());
  auto const none = resolved_zero(R"("stage": 2, "zero_quantized_weights": false,
                               "zero_quantized_gradients": "auto", "zeropp_loco_param": null)");
  EXPECT_FALSE(none.quantized_weights || none.quantized_gradients || none.error_feedback);
}

TEST(QuantizationKeys, NameTheErrorFeedback) {
  std::string const on = R"("stage": 3, "zero_quantized_gradients": true, "zeropp_loco_param": )";
  auto const c = resolved_zero(on + R"({"err_beta": 0.5, "reset_T": 16})");
  ASSERT_TRUE(c.error_feedback);
  EXPECT_EQ(c.error_feedback->beta, 0.5);
  EXPECT_EQ(c.error_feedback->reset_steps, 16);
  EXPECT_EQ(describe(c).at("error_feedback").at("value").at("reset_T").as_int(), 16);
  EXPECT_EQ(resolved_zero(on + "{}").error_feedback->beta, 0.8);
  EXPECT_EQ(resolved_zero(on + "{}").error_feedback->reset_steps, 1024);
  EXPECT_THAT(refusal_of_zero(on + R"({"err_beta": 1.5})"), HasSubstr("err_beta is 1.5"));
  EXPECT_THAT(refusal_of_zero(on + R"({"reset_T": 0})"), HasSubstr("reset_T is 0"));
  EXPECT_THAT(refusal_of_zero(on + R"({"reset_T": 1.5})"), HasSubstr("reset_T is 1.5"));
  EXPECT_THAT(refusal_of_zero(on + R"({"reset_t": 4})"), HasSubstr("unknown key"));
  EXPECT_THAT(refusal_of_zero(on + R"({"beta": 1, "reset_t": 4})"),
              HasSubstr("unknown keys zero_optimization.zeropp_loco_param.beta, "
                        "zero_optimization.zeropp_loco_param.reset_t; the block has"));
  EXPECT_THAT(refusal_of_zero(on + R"({"reset_T": "4"})"), HasSubstr("must be a number"));
  EXPECT_THAT(refusal_of_zero(on + "true"), HasSubstr("write a block"));
}

TEST(QuantizationKeys, AreThoseOfStage3) {
  for (char const* key : {"zero_quantized_weights", "zero_quantized_gradients"})
    EXPECT_THAT(refusal_of_zero(concat(R"("stage": 2, ")", key, R"(": true)")),
                HasSubstr(concat(key, " is true at stage 2")));
  EXPECT_THAT(
      refusal_of_zero(R"("stage": 3, "zero_quantized_gradients": true, "mics_shard_size": 2)"),
      HasSubstr("mics_shard_size is 2"));
  EXPECT_THAT(
      refusal_of_zero(R"("stage": 3, "zeropp_loco_param": {"err_beta": 0.8, "reset_T": 1024})"),
      HasSubstr("without zero_optimization.zero_quantized_gradients"));
  EXPECT_THAT(refusal_of_zero(R"("stage": 3, "zero_quantized_nontrainable_weights": true)"),
              HasSubstr("zero_quantized_weights"));
}

}  // namespace
}  // namespace tessera::config::detail
