#include "gemm/gemm_routes.hpp"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "gemm_case.hpp"
#include "tessera/core/error.hpp"
#include "tessera/kernels/gemm/gemm.hpp"
#include "tessera/memory/memory_tracker.hpp"

namespace tessera::kernels {
namespace {

using detail::GemmProblem;
using detail::GemmRoute;
using detail::SgemmLibrary;

GemmProblem problem_of(Case const& c, Matrix& result, Matrix const& a, Matrix const& b,
                       Matrix const& bias) {
  return {c.shape.m,
          c.shape.n,
          c.shape.k,
          c.ta,
          c.tb,
          c.accumulate,
          c.alpha,
          c.in,
          c.out,
          result.bytes.data(),
          a.bytes.data(),
          b.bytes.data(),
          c.bias ? bias.bytes.data() : nullptr};
}

class GemmRoutes : public ::testing::TestWithParam<std::tuple<Dtype, Dtype>> {};

TEST_P(GemmRoutes, EveryRouteAndLibraryOfThisMachineAgrees) {
  auto const [in, out] = GetParam();
  detail::GemmEngine engine;
  std::vector<GemmRoute> routes{in == Dtype::fp32 ? GemmRoute::direct : GemmRoute::panels};
  if (in == Dtype::bf16 && detail::has_native_bf16()) routes.push_back(GemmRoute::native);
  for (auto library : {SgemmLibrary::onednn, SgemmLibrary::cblas}) {
    if (!detail::has_library(library)) continue;
    for (auto route : routes)
      for_all({19, 70, 37}, in, out, [&](Case const& c) {
        if (route == GemmRoute::native && c.bias && c.alpha != 1.0f) return;
        check(c, [&](Matrix& r, Matrix& a, Matrix& b, Matrix& bias) {
          engine.run(problem_of(c, r, a, b, bias), route, library);
        });
        check(c, [&](Matrix& r, Matrix& a, Matrix& b, Matrix& bias) {
          Matrix wide_a = with_gaps(a, a.columns + 3), wide_b = with_gaps(b, b.columns + 6),
                 wide_r = with_gaps(r, r.columns + 1);
          GemmProblem p = problem_of(c, wide_r, wide_a, wide_b, bias);
          p.row_a = wide_a.columns, p.row_b = wide_b.columns, p.row_c = wide_r.columns;
          engine.run(p, route, library);
          EXPECT_TRUE(take_out_gaps(r, wide_r));
        });
      });
  }
}

INSTANTIATE_TEST_SUITE_P(AllDtypes, GemmRoutes, all_dtypes(), dtypes_name);

/// fp8 operands mean exact numbers: the product is as close to the double-precision reference as
/// one of fp32 numbers.
TEST(Fp8Products, EqualTheDoubleReferenceOfTheirCodes) {
  constexpr Float8 pairs[][2] = {
      {Float8::e4m3, Float8::e4m3}, {Float8::e5m2, Float8::e4m3}, {Float8::e4m3, Float8::e5m2}};
  auto const q = memory::make_inline_queue("compute");
  for (auto const [format_a, format_b] : pairs)
    for (Shape const shape : {Shape{3, 16, 16}, Shape{70, 400, 800}, Shape{300, 48, 1600}})
      for (Dtype const out : {Dtype::fp32, Dtype::bf16})
        for (int const bits : {0, 1, 2, 3}) {
          Case c{shape, false, true, (bits & 1) != 0, (bits & 2) != 0, 0x1p-5f, Dtype::bf16, out};
          auto const codes = [](Matrix& m, Float8 format) {
            std::vector<std::uint8_t> codes;
            for (std::int64_t i = 0; i < m.rows * m.columns; ++i) {
              float8_e4m3 const x(static_cast<float>(m.get(i)));
              float8_e5m2 const y(static_cast<float>(m.get(i)));
              bool const e4m3 = format == Float8::e4m3;
              codes.push_back(e4m3 ? x.bits : y.bits);
              m.set(i, e4m3 ? static_cast<float>(x) : static_cast<float>(y));
            }
            return codes;
          };
          float const scale_a = 0x1p-8f, scale_b = 0x1p3f;
          check(c, [&](Matrix& r, Matrix& a, Matrix& b, Matrix& bias) {
            auto const ca = codes(a, format_a), cb = codes(b, format_b);
            auto const view = [](auto const& of, Matrix const& m) {
              return memory::ConstTensorView(of.data(), Dtype::uint8, {m.rows, m.columns});
            };
            gemm(*q,
                 {.transpose_b = true,
                  .accumulate = c.accumulate,
                  .fp8_a = {format_a, {&scale_a, Dtype::fp32, {1}}},
                  .fp8_b = {format_b, {&scale_b, Dtype::fp32, {1}}}},
                 r.view(), view(ca, a), view(cb, b),
                 {.bias = c.bias ? bias.view().flat() : TensorView()});
          });
        }
}

TEST(Fp8Products, OfTwoGradientsOrWithoutScalesAreRefused) {
  auto const q = memory::make_inline_queue("compute");
  std::vector<std::uint8_t> codes(256);
  float const one = 1.0f;
  float result[256];
  TensorView const c(result, Dtype::fp32, {16, 16}), a(codes.data(), Dtype::uint8, {16, 16});
  memory::ConstTensorView const scale(&one, Dtype::fp32, {1});
  EXPECT_THROW(gemm(*q, {.transpose_b = true}, c, a, a), InternalError);
  EXPECT_THROW(
      gemm(*q,
           {.transpose_b = true, .fp8_a = {Float8::e5m2, scale}, .fp8_b = {Float8::e5m2, scale}}, c,
           a, a),
      InternalError);
}

TEST(ChooseRoute, DependsOnTheDtypeAndTheProcessorOnly) {
  GemmProblem p;
  p.m = p.n = p.k = 64;
  EXPECT_EQ(detail::choose_route(p), GemmRoute::direct);
  p.in = p.out = Dtype::fp16;
  EXPECT_EQ(detail::choose_route(p), GemmRoute::panels) << "no library multiplies fp16";
  p.in = p.out = Dtype::bf16;
  GemmRoute const bf16 = detail::choose_route(p);
  EXPECT_NE(bf16, GemmRoute::direct);
  EXPECT_TRUE(bf16 == GemmRoute::panels || detail::has_native_bf16());
  EXPECT_EQ(detail::choose_route(p), bf16) << "asked again";
}

/// The head's weight gradient: rows of logits are longer than the vocabulary. With such gaps oneDNN
/// sums bf16 results in fp32 copies of them (147 MiB and more for GPT-2), which nobody plans.
TEST(NativeRoute, KeepsNoCopyOfALargeResult) {
  if (!detail::has_native_bf16()) GTEST_SKIP() << "this processor multiplies no bf16";
  constexpr std::int64_t tokens = 32, width = 256, vocabulary = 20'001, row = 20'032;
  Case const shape{
      {vocabulary, width, tokens}, true, false, true, false, 1.0f, Dtype::bf16, Dtype::bf16};
  auto const before = memory::MemoryTracker::of_process().current(memory::Purpose::workspace);
  detail::GemmEngine engine;
  std::size_t after = 0;
  check(shape, [&](Matrix& r, Matrix& a, Matrix& b, Matrix& bias) {
    Matrix const wide = with_gaps(a, row);
    GemmProblem p = problem_of(shape, r, wide, b, bias);
    p.row_a = row;
    engine.run(p, GemmRoute::native, SgemmLibrary::onednn);
    after = memory::MemoryTracker::of_process().current(memory::Purpose::workspace);
  });
  EXPECT_LE(after - before, std::size_t{10} << 20) << "of a result of 10 MB, 20 in fp32";
}

TEST(ChooseLibrary, IsOneOfThisBuild) {
  for (int threads : {1, 2, 64})
    EXPECT_TRUE(detail::has_library(detail::choose_library(threads))) << threads << " threads";
}

}  // namespace
}  // namespace tessera::kernels
