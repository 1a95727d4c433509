#include "commands.hpp"

#include <gtest/gtest.h>

#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

TEST(ModelDtype, HasShortAndLongNames) {
  for (char const* name : {"fp32", "float32"}) EXPECT_EQ(model_dtype(name), Dtype::fp32);
  for (char const* name : {"bf16", "bfloat16"}) EXPECT_EQ(model_dtype(name), Dtype::bf16);
  for (char const* name : {"fp16", "float16"}) EXPECT_EQ(model_dtype(name), Dtype::fp16);
  for (char const* name : {"", "fp64", "FP32", "int8"})
    EXPECT_THROW(model_dtype(name), UsageError) << name;
}

}  // namespace
}  // namespace tessera::cli
