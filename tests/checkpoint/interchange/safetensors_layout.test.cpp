#include "interchange/detail/safetensors_layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::checkpoint::detail {
namespace {

using ::testing::HasSubstr;

std::vector<TensorHeader> const tensors{{"a", {4, 8}}, {"b", {8}}, {"c", {64}}};

TEST(SafetensorsLayout, OneFileHoldsAllTensorsInOrder) {
  SafetensorsLayout const layout(tensors, Dtype::fp32, 1 << 20);
  ASSERT_EQ(layout.files(), 1u);
  EXPECT_EQ(layout.name(0), "model.safetensors");
  auto const start = static_cast<std::int64_t>(layout.header(0).size());
  EXPECT_EQ(start % 64, 0);
  EXPECT_EQ(layout.location(0).offset, start);
  EXPECT_EQ(layout.location(1).offset, start + 128);
  EXPECT_EQ(layout.location(2).offset, start + 160);
  EXPECT_EQ(layout.bytes(0), start + 160 + 256);
  EXPECT_THAT(layout.header(0),
              HasSubstr("\"c\":{\"dtype\":\"F32\",\"shape\":[64],\"data_offsets\":[160,416]}"));
}

TEST(SafetensorsLayout, AFileIsFilledUntilTheNextTensorIsTooLarge) {
  SafetensorsLayout const layout(tensors, Dtype::bf16, 100);
  ASSERT_EQ(layout.files(), 2u);
  EXPECT_EQ(layout.name(1), "model-00002-of-00002.safetensors");
  EXPECT_EQ(layout.last(0), 2u);
  EXPECT_EQ(layout.first(1), 2u);
  EXPECT_EQ(layout.location(1).file, 0u);
  EXPECT_EQ(layout.location(2).file, 1u);
  EXPECT_EQ(layout.bytes(1), static_cast<std::int64_t>(layout.header(1).size()) + 128);
  EXPECT_THAT(layout.index_text(), HasSubstr("\"total_size\": 208"));
  EXPECT_THAT(layout.index_text(), HasSubstr("\"c\": \"model-00002-of-00002.safetensors\""));
}

}  // namespace
}  // namespace tessera::checkpoint::detail
