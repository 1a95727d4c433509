#include "attention/attention_launch.hpp"

#include <gtest/gtest.h>

#include <string>

#include "attention/sample_run.hpp"
#include "tessera/core/error.hpp"

namespace tessera::kernels::detail {
namespace {

TEST(ChooseAttention, TakesCudnnWhereItComputesTheCall) {
  EXPECT_EQ(choose_attention(DeviceAttention::automatic, ""), AttentionLibrary::cudnn);
  EXPECT_EQ(choose_attention(DeviceAttention::automatic, "fp32"), AttentionLibrary::portable);
  EXPECT_EQ(choose_attention(DeviceAttention::cudnn, ""), AttentionLibrary::cudnn);
  EXPECT_EQ(choose_attention(DeviceAttention::portable, ""), AttentionLibrary::portable);
  EXPECT_EQ(choose_attention(DeviceAttention::portable, "fp32"), AttentionLibrary::portable);
}

TEST(ChooseAttention, NamesTheReasonWhenCudnnWasAskedForAndCannot) {
  try {
    choose_attention(DeviceAttention::cudnn, "heads of 60 elements");
    FAIL() << "cuDNN was chosen";
  } catch (ConfigError const& error) {
    EXPECT_NE(std::string(error.what()).find("heads of 60 elements"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("--device_attention auto"), std::string::npos);
  }
}

TEST(RefusalOfMasks, NamesTheDropoutAndWhatIsWrong) {
  EXPECT_EQ(refusal_of_masks(0.1f, ""), "");
  auto const refusal = refusal_of_masks(0.1f, "heads have related masks");
  EXPECT_EQ(refusal,
            "a dropout of 0.1 on attention weights (attn_pdrop) as training needs it: heads have "
            "related masks");
  EXPECT_EQ(choose_attention(DeviceAttention::automatic, refusal), AttentionLibrary::portable);
  EXPECT_THROW(choose_attention(DeviceAttention::cudnn, refusal), ConfigError);
}

TEST(RefusalOfMasks, NamesTheSettingThatHasMorePlans) {
  auto const names_it = [] {
    return refusal_of_masks(0.1f, no_plan).find("--deterministic false") != std::string::npos;
  };
  EXPECT_TRUE(names_it());
  set_device_settings({.deterministic = false});
  EXPECT_FALSE(names_it());
  set_device_settings({});
}

}  // namespace
}  // namespace tessera::kernels::detail
