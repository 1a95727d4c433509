#include "gemm/gemm_epilogue.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tessera::kernels::detail {
namespace {

TEST(GeluKernel, FollowsTheSettingAndKeepsFp32Separate) {
  for (GeluKernel const faster : {GeluKernel::epilogue, GeluKernel::separate}) {
    EXPECT_EQ(choose_gelu(DeviceGelu::fused, Dtype::fp32, faster), GeluKernel::epilogue);
    EXPECT_EQ(choose_gelu(DeviceGelu::separate, Dtype::bf16, faster), GeluKernel::separate);
    EXPECT_EQ(choose_gelu(DeviceGelu::automatic, Dtype::bf16, faster), faster);
    EXPECT_EQ(choose_gelu(DeviceGelu::automatic, Dtype::fp16, faster), faster);
    EXPECT_EQ(choose_gelu(DeviceGelu::automatic, Dtype::fp32, faster), GeluKernel::separate);
  }
}

TEST(Alignment, IsTheLargestPowerOfTwoUpTo256) {
  auto const at = [](std::uintptr_t address) {
    return alignment_of(reinterpret_cast<void const*>(address));
  };
  EXPECT_EQ(alignment_of(nullptr), 256u);
  EXPECT_EQ(at(4096), 256u);
  EXPECT_EQ(at(4096 + 16), 16u);
  EXPECT_EQ(at(4096 + 2), 2u);
}

/// A product with everything that cuBLASLt computes in one call.
GemmProblem one_call(GemmActivation activation) {
  alignas(256) static std::byte memory[256];
  GemmProblem p;
  p.m = p.n = p.k = 8;
  p.in = p.out = Dtype::bf16;
  p.c = p.gelu_input = memory;
  p.activation = activation;
  return p;
}

TEST(OneCall, ServesActivationsOnlyInTheEpilogue) {
  for (auto const activation : {GemmActivation::gelu, GemmActivation::gelu_slope}) {
    EXPECT_TRUE(fits_one_call(one_call(activation), GeluKernel::epilogue));
    EXPECT_FALSE(fits_one_call(one_call(activation), GeluKernel::separate));
  }
  EXPECT_TRUE(fits_one_call(one_call(GemmActivation::none), GeluKernel::separate));
}

TEST(OneCall, RefusesWhatTheManualDoes) {
  auto const fits = [](auto const& change) {
    GemmProblem p = one_call(GemmActivation::gelu);
    change(p);
    return fits_one_call(p, GeluKernel::epilogue);
  };
  EXPECT_TRUE(fits([](GemmProblem& p) { p.bias = p.c; }));
  EXPECT_FALSE(fits([](GemmProblem& p) { p.k = 0; }));
  EXPECT_FALSE(fits([](GemmProblem& p) { p.bias = p.c, p.out = Dtype::fp32; }));
  EXPECT_TRUE(fits([](GemmProblem& p) {
    p.bias = p.c, p.out = Dtype::fp32, p.has_fp32_bias = true;
    p.activation = GemmActivation::none;
  }));
  EXPECT_FALSE(fits([](GemmProblem& p) { p.out = Dtype::fp32; }));
  EXPECT_FALSE(fits([](GemmProblem& p) { p.n = 12; }));
  EXPECT_FALSE(
      fits([](GemmProblem& p) { p.gelu_input = static_cast<std::byte*>(p.gelu_input) + 8; }));
  EXPECT_FALSE(
      fits([](GemmProblem& p) { p.bias = p.c, p.activation = GemmActivation::gelu_slope; }));
}

TEST(Activation, IsAppliedWhereTheProductWithoutItLeavesX) {
  std::vector<float> x{-1.0f, 0.5f, 2.0f, 3.0f}, c(4, 7.0f);
  GemmProblem p;
  p.m = p.n = 2;
  p.c = c.data();
  p.gelu_input = x.data();
  auto const q = memory::make_inline_queue("compute");
  auto const gelu = [](double v) {
    return 0.5 * v * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (v + 0.044715 * v * v * v)));
  };
  p.activation = GemmActivation::gelu;
  EXPECT_EQ(without_activation(p).c, x.data());
  EXPECT_EQ(without_activation(p).activation, GemmActivation::none);
  apply_activation(*q, p);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(c[i], gelu(x[i]), 1e-6);

  p.activation = GemmActivation::gelu_slope;
  EXPECT_EQ(without_activation(p).c, c.data());
  c.assign(4, 2.0f);
  apply_activation(*q, p);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(c[i], 2.0 * (gelu(x[i] + 1e-5) - gelu(x[i] - 1e-5)) / 2e-5, 1e-6);
}

TEST(BeginWithBias, TakesAnFp32BiasOf16BitProducts) {
  std::vector<float> const bias{1.0f, 0x1p-20f};
  std::vector<float> c(2);
  auto const q = memory::make_inline_queue("compute");
  GemmProblem p;
  p.m = 1, p.n = 2, p.in = Dtype::bf16;
  p.c = c.data(), p.bias = bias.data();
  p.has_fp32_bias = true;
  begin_with_bias(*q, p);
  EXPECT_EQ(c, bias);
}

TEST(BeginWithBias, WritesOrAddsTheBiasToEachRow) {
  std::vector<float> const bias{1.0f, 2.0f, 3.0f};
  std::vector<float> c{10, 20, 30, -1, 40, 50, 60, -1};  // rows of 4, of which 3 are c
  auto const q = memory::make_inline_queue("compute");
  GemmProblem p;
  p.m = 2, p.n = 3, p.row_c = 4;
  p.c = c.data(), p.bias = bias.data();
  p.accumulate = true;
  begin_with_bias(*q, p);
  EXPECT_EQ(c, (std::vector<float>{11, 22, 33, -1, 41, 52, 63, -1}));
  p.accumulate = false;
  begin_with_bias(*q, p);
  EXPECT_EQ(c, (std::vector<float>{1, 2, 3, -1, 1, 2, 3, -1}));
}

}  // namespace
}  // namespace tessera::kernels::detail
