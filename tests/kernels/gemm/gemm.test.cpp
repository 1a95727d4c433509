#include "tessera/kernels/gemm/gemm.hpp"
#include "tessera/kernels/gemm/gemm_headers.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "gemm_case.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/runtime.hpp"

namespace tessera::kernels {
namespace {

class GemmTest : public ::testing::TestWithParam<std::tuple<Dtype, Dtype>> {
 protected:
  std::unique_ptr<Queue> q = memory::make_inline_queue("compute");
};

TEST_P(GemmTest, EqualsTheDoubleReference) {
  auto const [in, out] = GetParam();
  for (Shape shape : {Shape{1, 1, 1}, Shape{3, 5, 7}, Shape{33, 17, 65}, Shape{64, 96, 128}})
    for_all(shape, in, out, [&](Case const& c) {
      check(c, [&](Matrix& r, Matrix& a, Matrix& b, Matrix& bias) {
        gemm(*q, {c.ta, c.tb, c.accumulate, c.alpha}, r.view(), a.view(), b.view(),
             {.bias = c.bias ? bias.view().flat() : TensorView()});
      });
    });
}

/// Shapes that need several panels along each dimension of the panel route, with a short last
/// panel.
TEST_P(GemmTest, ShapesBeyondOnePanel) {
  auto const [in, out] = GetParam();
  for (Shape shape :
       {Shape{2100, 33, 40}, Shape{9, 2051, 24}, Shape{6, 10, 2500}, Shape{2050, 1030, 1029}})
    for (int bits : {0, 7, 10, 13})
      check(Case{shape, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, 1.0f,
                 in, out},
            [&, bits](Matrix& r, Matrix& a, Matrix& b, Matrix& bias) {
              gemm(*q, {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, 1.0f}, r.view(),
                   a.view(), b.view(),
                   {.bias = (bits & 8) != 0 ? bias.view().flat() : TensorView()});
            });
}

TEST_P(GemmTest, RowsMayHaveGaps) {
  auto const [in, out] = GetParam();
  for (Shape shape : {Shape{5, 400, 800}, Shape{3, 4, 0}})  // the first has several blocks
    for (int bits : {0, 7, 10, 13})
      check(Case{shape, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, 1.0f,
                 in, out},
            [&, bits](Matrix& r, Matrix& a, Matrix& b, Matrix& bias) {
              Matrix wide_a = with_gaps(a, a.columns + 3), wide_b = with_gaps(b, b.columns + 6),
                     wide_r = with_gaps(r, r.columns + 1);
              auto const view = [](Matrix& wide, Matrix const& m) {
                return TensorView(wide.bytes.data(), m.dtype, {m.rows, m.columns});
              };
              Gemm const how{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, 1.0f,
                             wide_a.columns,  wide_b.columns,  wide_r.columns};
              gemm(*q, how, view(wide_r, r), view(wide_a, a), view(wide_b, b),
                   {.bias = (bits & 8) != 0 ? bias.view().flat() : TensorView()});
              EXPECT_TRUE(take_out_gaps(r, wide_r));
            });
}

TEST_P(GemmTest, AnEmptySumLeavesBiasOrOldValue) {
  auto const [in, out] = GetParam();
  for (bool accumulate : {false, true}) {
    Matrix a(3, 0, in, 1), b(0, 4, in, 2), c(3, 4, out, 3);
    Matrix const old = c;
    gemm(*q, {false, false, accumulate, 1.0f}, c.view(), a.view(), b.view());
    for (std::int64_t i = 0; i < 12; ++i) EXPECT_EQ(c.get(i), accumulate ? old.get(i) : 0.0);
  }
}

/// Both biases have the same values.
TEST_P(GemmTest, ABiasOfTheResultsDtypeGivesTheSameBits) {
  auto const [in, out] = GetParam();
  for (std::int64_t const depth : {0, 1, 65}) {
    Matrix a(33, depth, in, 1), b(depth, 24, in, 2), bias(1, 24, in, 3);
    Matrix first(33, 24, out, 4), second(33, 24, out, 5), converted(1, 24, out, 6);
    cast(*q, converted.view(), bias.view());
    gemm(*q, {}, first.view(), a.view(), b.view(), {.bias = bias.view().flat()});
    gemm(*q, {}, second.view(), a.view(), b.view(), {.bias = converted.view().flat()});
    EXPECT_EQ(first.bytes, second.bytes) << "depth " << depth;
  }
}

TEST_P(GemmTest, RepeatsBitForBit) {
  auto const [in, out] = GetParam();
  Matrix a(130, 257, in, 1), b(257, 95, in, 2), first(130, 95, out, 3), second(130, 95, out, 4);
  gemm(*q, {}, first.view(), a.view(), b.view());
  std::vector<std::byte> shifted(a.bytes.size() + 64);  // equal values elsewhere in memory
  std::memcpy(shifted.data() + 12, a.bytes.data(), a.bytes.size());
  gemm(*q, {}, second.view(), TensorView(shifted.data() + 12, in, {130, 257}), b.view());
  EXPECT_EQ(first.bytes, second.bytes);
}

/// The host has no other way than the kernels one after the other: the same bits, not the same
/// value.
TEST_P(GemmTest, ActivationsAreTheKernelsAfterTheProduct) {
  auto const [in, out] = GetParam();
  Matrix a(33, 40, in, 1), b(40, 24, in, 2), bias(1, 24, in, 3), before(33, 24, out, 4),
      dout(33, 24, out, 5);
  Matrix x(33, 24, out, 6), want(33, 24, out, 7), kept(33, 24, out, 8), got(33, 24, out, 9);
  gemm(*q, {}, x.view(), a.view(), b.view(), {.bias = bias.view().flat()});
  gelu_new(*q, want.view(), x.view());
  gemm(*q, {}, got.view(), a.view(), b.view(),
       {.bias = bias.view().flat(), .gelu_input = kept.view()});
  EXPECT_EQ(kept.bytes, x.bytes);
  EXPECT_EQ(got.bytes, want.bytes);

  gemm(*q, {}, x.view(), a.view(), b.view());
  gelu_new_backward(*q, want.view(), x.view(), before.view());
  auto const worker = memory::make_worker_queue("lane");
  for (Queue* queue : {q.get(), worker.get()}) {
    got = dout;
    gemm(*queue, {}, got.view(), a.view(), b.view(), {.gelu_slope_at = before.view()});
    queue->record().wait("the product", std::chrono::seconds(60));
    EXPECT_EQ(got.bytes, want.bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(AllDtypes, GemmTest, all_dtypes(), dtypes_name);

TEST(Gemm, RunsOnAWorkerQueueInItsOrder) {
  auto q = memory::make_worker_queue("lane");
  Matrix a(40, 30, Dtype::bf16, 1), b(30, 20, Dtype::bf16, 2), c(40, 20, Dtype::bf16, 3),
      d(40, 20, Dtype::bf16, 4);
  auto inline_q = memory::make_inline_queue("compute");
  gemm(*inline_q, {}, d.view(), a.view(), b.view());
  gemm(*q, {}, c.view(), a.view(), b.view());
  q->record().wait("the product", std::chrono::seconds(60));
  EXPECT_EQ(c.bytes, d.bytes);
}

TEST(Gemm, AllocatesNothingOnceAShapeWasSeen) {
  auto q = memory::make_inline_queue("compute");
  Matrix a(300, 200, Dtype::bf16, 1), b(200, 100, Dtype::bf16, 2), c(300, 100, Dtype::bf16, 3);
  gemm(*q, {}, c.view(), a.view(), b.view());
  auto const& tracker = memory::MemoryTracker::of_process();
  auto const before = tracker.current(memory::Purpose::workspace);
  for (int i = 0; i < 3; ++i) gemm(*q, {}, c.view(), a.view(), b.view());
  EXPECT_EQ(tracker.current(memory::Purpose::workspace), before);
}

TEST(Gemm, RefusesWhatDoesNotFit) {
  auto q = memory::make_inline_queue("compute");
  Matrix a(4, 3, Dtype::fp32, 1), b(3, 5, Dtype::fp32, 2), c(4, 5, Dtype::fp32, 3),
      wide(4, 6, Dtype::fp32, 4);
  Matrix half(3, 5, Dtype::fp16, 5), half_c(4, 5, Dtype::fp16, 6);
  auto const message_of = [&](auto&& f) -> std::string {
    try {
      f();
    } catch (InternalError const& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message_of([&] { gemm(*q, {}, wide.view(), a.view(), b.view()); }),
            "matrix product [4, 6] fp32 = [4, 3] fp32 x [3, 5] fp32: the dimensions do not fit");
  EXPECT_NE(message_of([&] {
              gemm(*q, {true, false, false, 1.0f}, c.view(), a.view(), b.view());
            }),
            "");
  EXPECT_NE(message_of([&] { gemm(*q, {}, c.view(), a.view(), half.view()); }), "");
  EXPECT_NE(message_of([&] { gemm(*q, {}, half_c.view(), a.view(), b.view()); }), "");
  EXPECT_NE(message_of([&] { gemm(*q, {}, c.view(), a.view(), b.view().reshape({15})); }), "");
  EXPECT_NE(
      message_of([&] { gemm(*q, {}, c.view(), a.view(), b.view(), {.bias = a.view().flat()}); }),
      "");

  Matrix input(4, 5, Dtype::fp32, 7);
  EXPECT_EQ(message_of([&] {
              gemm(*q, {.accumulate = true}, c.view(), a.view(), b.view(),
                   {.gelu_input = input.view()});
            }),
            "matrix product [4, 5] fp32 = [4, 3] fp32 x [3, 5] fp32: gelu_new and its gradient "
            "exclude each other, accumulation and gaps in the result");
  EXPECT_NE(message_of([&] {
              gemm(*q, {}, c.view(), a.view(), b.view(),
                   {.gelu_input = input.view(), .gelu_slope_at = input.view()});
            }),
            "");
  EXPECT_EQ(
      message_of([&] { gemm(*q, {}, c.view(), a.view(), b.view(), {.gelu_input = c.view()}); }),
      "matrix product [4, 5] fp32 = [4, 3] fp32 x [3, 5] fp32: the input of gelu_new is [4, 5] "
      "fp32; it must be a matrix of its own with the "
      "result's shape and dtype");
  EXPECT_EQ(message_of([&] { gemm(*q, {.row_b = 4}, c.view(), a.view(), b.view()); }),
            "matrix product [4, 5] fp32 = [4, 3] fp32 x [3, 5] fp32: rows that begin 3, 4 and 5 "
            "elements apart are longer than that");
  EXPECT_NE(message_of([&] {
              gemm(*q, {.row_c = 6}, c.view(), a.view(), b.view(), {.gelu_input = input.view()});
            }),
            "");
  EXPECT_NE(message_of([&] {
              gemm(*q, {}, c.view(), a.view(), b.view(), {.gelu_slope_at = half_c.view()});
            }),
            "");
  EXPECT_NE(message_of([&] {
              gemm(*q, {}, c.view(), a.view(), b.view(), {.gelu_slope_at = wide.view()});
            }),
            "");
}

TEST(Gemm, NamesItsLibrary) {
  std::string const name = gemm_library();
  EXPECT_TRUE(name.find("oneDNN ") == 0 || name.find("OpenBLAS ") == 0 || name.find("CBLAS") == 0)
      << name;
  EXPECT_NE(name.find(", bf16 "), std::string::npos) << name;
}

}  // namespace
}  // namespace tessera::kernels
