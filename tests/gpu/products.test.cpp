/// Matrix products as a device computes them: the calls to cuBLASLt and the steps around it,
/// against the double-precision reference of tests/kernels. Without arguments over a cuBLASLt and a
/// device made of host memory, whose rules are the manual's; with "device" on a GPU and NVIDIA's
/// library, which also shows that its GELU is the form with tanh.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string_view>

#include "../kernels/gemm_case.hpp"
#include "fake_cublaslt.hpp"
#include "fake_device.hpp"
#include "gemm/cublaslt_library.hpp"
#include "gemm/gemm_libraries.hpp"
#include "tessera/kernels/gemm/gemm.hpp"
#include "tessera/kernels/launch/device_settings.hpp"
#include "tessera/kernels/launch/used_routes.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/runtime.hpp"

namespace tessera::kernels {
namespace {

using detail::GemmActivation;
using detail::GemmProblem;

constexpr auto deadline = std::chrono::seconds(60);
test::FakeDevice* fake_device = nullptr;  // null: a GPU and NVIDIA's cuBLASLt

/// A matrix's copy in device memory, @p shift bytes behind an aligned address.
class OnDevice {
 public:
  OnDevice(Queue& q, Matrix const& m, std::size_t shift = 0)
      : q_(q),
        shift_(shift),
        buffer_("operand", memory::Purpose::workspace, m.bytes.size() + shift,
                memory::MemorySpace::device) {
    memory::copy(q, data(), m.bytes.data(), m.bytes.size());
    q.record().wait("the copy", deadline);
  }
  void* data() const { return static_cast<std::byte*>(buffer_.data()) + shift_; }
  void read(Matrix& m) const {
    memory::copy(q_, m.bytes.data(), data(), m.bytes.size());
    q_.record().wait("the product", deadline);
  }

 private:
  Queue& q_;
  std::size_t shift_;
  memory::Buffer buffer_;
};

/// One product with its operands; the reference is of exact operands, so x is known to fp32's
/// accuracy.
struct Product {
  Case c;
  GemmActivation activation = GemmActivation::none;
  std::size_t shift_c = 0, shift_bias = 0, shift_input = 0;
  std::size_t shift_a = 0, shift_b = 0;
  std::int64_t gap_a = 0, gap_b = 0, gap_c = 0;  ///< elements between rows
  double intermediate = 0.0;  ///< largest value that is rounded to c's dtype on the way
  bool has_fp32_bias = false;
};

double gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  double const t = std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1.0 + t) +
         0.5 * x * (1.0 - t * t) * std::sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * x * x);
}
/// The hardware's tanh is exact to 11 bits; whether cuBLASLt uses it is not documented.
double tanh_error() { return fake_device ? 3e-6 : 0x1p-10; }
/// What sums in tensor cores lose more than those of the host, which round to nearest.
double of_tensor_cores(Case const& c) {
  return fake_device ? 0.0 : 3e-6 * (1.0 + std::sqrt(static_cast<double>(c.shape.k)));
}
double unit_of(Dtype d) { return d == Dtype::bf16 ? 0x1p-8 : d == Dtype::fp16 ? 0x1p-11 : 0x1p-24; }

class Products : public ::testing::TestWithParam<std::tuple<Dtype, Dtype>> {
 protected:
  void SetUp() override { set_device_settings({.gelu = DeviceGelu::fused}); }
  void TearDown() override { set_device_settings({}); }

  /// Computes and compares all of c, and x where it is kept. @p roundings: how often x may be
  /// rounded on its way into c.
  void check(Product const& p, double roundings = 1.0) {
    Case const& c = p.c;
    Matrix const a = operand_a(c), b = operand_b(c),
                 bias(1, c.shape.n, p.has_fp32_bias ? Dtype::fp32 : c.in, 3),
                 old(c.shape.m, c.shape.n, c.out, 4);
    Matrix input(c.shape.m, c.shape.n, c.out, 5);
    Matrix const wide_a = with_gaps(a, a.columns + p.gap_a),
                 wide_b = with_gaps(b, b.columns + p.gap_b);
    Matrix wide_c = with_gaps(old, old.columns + p.gap_c), got = old, kept = input;
    OnDevice const da(*q, wide_a, p.shift_a), db(*q, wide_b, p.shift_b),
        dbias(*q, bias, p.shift_bias), dc(*q, wide_c, p.shift_c), dinput(*q, input, p.shift_input);
    run({c.shape.m, c.shape.n, c.shape.k, c.ta, c.tb, c.accumulate, c.alpha, c.in, c.out, dc.data(),
         da.data(), db.data(), c.bias ? dbias.data() : nullptr, p.activation,
         p.activation == GemmActivation::none ? nullptr : dinput.data(),
         p.gap_a ? wide_a.columns : 0, p.gap_b ? wide_b.columns : 0, p.gap_c ? wide_c.columns : 0},
        p.has_fp32_bias);
    dc.read(wide_c);
    EXPECT_TRUE(take_out_gaps(got, wide_c));
    dinput.read(kept);
    for (std::int64_t e = 0; e < c.shape.m * c.shape.n; ++e) {
      double const x = expected(c, a, b, bias, old, e / c.shape.n, e % c.shape.n);
      double const want = p.activation == GemmActivation::gelu ? gelu(x)
                          : p.activation == GemmActivation::gelu_slope
                              ? x * gelu_slope(input.get(e))
                              : x;
      // NVIDIA's library rounds a product before it adds c to it (seen on an H200).
      double const shift = c.bias ? bias.get(e % c.shape.n) : 0.0,
                   start = c.accumulate ? static_cast<double>(old.get(e)) : 0.0;
      double const parts =
          p.intermediate +
          (fake_device ? 0.0 : std::abs(x - shift - start) + std::abs(shift) + std::abs(start));
      double const off =
          tolerance(c, x) + of_tensor_cores(c) +
          (parts + std::abs(x) + std::abs(want)) * roundings * unit_of(c.out) +
          (p.activation == GemmActivation::none ? 0.0
                                                : tanh_error() * (std::abs(x) + std::abs(want)));
      ASSERT_NEAR(got.get(e), want, off)
          << "element " << e << " of " << c.shape.m << " x " << c.shape.n << " x " << c.shape.k
          << (c.ta ? ", a^T" : "") << (c.tb ? ", b^T" : "") << (c.bias ? ", bias" : "")
          << (c.accumulate ? ", accumulating" : "") << ", alpha " << c.alpha << ", "
          << used_routes_text();
      if (p.activation == GemmActivation::gelu) {
        ASSERT_NEAR(kept.get(e), x, tolerance(c, x) + parts * unit_of(c.out));
      }
    }
  }
  void run(GemmProblem p, bool has_fp32_bias = false) {
    p.has_fp32_bias = has_fp32_bias;
    detail::cublaslt_product(*q, p);
  }

  std::unique_ptr<Queue> q = memory::make_stream_queue("compute");
};

TEST_P(Products, EqualTheDoubleReference) {
  auto const [in, out] = GetParam();
  for (Shape shape :
       {Shape{1, 1, 1}, Shape{3, 5, 7}, Shape{33, 17, 65}, Shape{64, 96, 128}, Shape{24, 40, 16}})
    for_all(shape, in, out, [&](Case const& c) { check({c}); });
}

TEST_P(Products, GeluAndItsGradient) {
  auto const [in, out] = GetParam();
  for (Shape shape : {Shape{5, 8, 3}, Shape{33, 24, 65},
                      Shape{7, 13, 9}})  // the last: no multiple of 8, in two steps
    for (int bits = 0; bits < 8; ++bits)
      for (auto activation : {GemmActivation::gelu, GemmActivation::gelu_slope})
        for (float alpha : {1.0f, -0.375f}) {
          Case const c{shape, (bits & 1) != 0, (bits & 2) != 0, false, (bits & 4) != 0, alpha, in,
                       out};
          check({c, activation}, 2.0);
        }
}

TEST_P(Products, OperandsMayLieAnywhere) {
  auto const [in, out] = GetParam();
  auto const element = size_of(out);
  for (std::size_t shift : {element, 4 * element, std::size_t{64}})
    for (auto activation : {GemmActivation::none, GemmActivation::gelu, GemmActivation::gelu_slope})
      check({{{16, 24, 32},
              false,
              false,
              false,
              activation != GemmActivation::gelu_slope,
              1.0f,
              in,
              out},
             activation,
             shift,
             shift,
             shift},
            2.0);
  for (bool left : {true, false}) {
    Product p{{{16, 24, 32}, false, false, false, false, 1.0f, in, out}};
    (left ? p.shift_a : p.shift_b) = size_of(in);
    check(p);
  }
}

TEST_P(Products, RowsMayHaveGaps) {
  auto const [in, out] = GetParam();
  for_all({33, 17, 65}, in, out, [&](Case const& c) {
    Product p{c};
    p.gap_a = 7, p.gap_b = 1, p.gap_c = 15;
    check(p);
  });
}

/// A long dimension that is no multiple of 8, as a vocabulary of 50257 tokens, in rows with gaps.
TEST_P(Products, LongDimensionsMayBeOdd) {
  auto const [in, out] = GetParam();
  auto const gap = [](std::int64_t columns) { return (columns + 7) / 8 * 8 - columns; };
  for (Shape shape : {Shape{1029, 16, 24}, Shape{16, 1029, 24}, Shape{16, 24, 1029}})
    for_all(shape, in, out, [&](Case const& c) {
      Product p{c};
      p.gap_a = gap(c.ta ? shape.m : shape.k), p.gap_b = gap(c.tb ? shape.k : shape.n);
      p.gap_c = gap(shape.n);
      if (shape.k > 1024) p.intermediate = 4.0;
      check(p);
    });
}

TEST_P(Products, AnEmptySumLeavesBiasOrOldValue) {
  auto const [in, out] = GetParam();
  Product gaps{{{3, 4, 0}, false, false, true, true, 1.0f, in, out}};
  gaps.gap_c = 2;
  check(gaps);
  for (int bits = 0; bits < 4; ++bits)
    check({{{3, 4, 0}, false, false, (bits & 1) != 0, (bits & 2) != 0, 1.0f, in, out}});
  check({{{3, 8, 0}, false, false, false, true, 1.0f, in, out}, GemmActivation::gelu}, 2.0);
}

/// The other form, x (1 + erf(x / sqrt 2)) / 2, is up to 4.7e-4 away: seen in the sum over many x
/// where the dtype is fine enough.
TEST_P(Products, GeluIsTheFormWithTanh) {
  auto const [in, out] = GetParam();
  if (out == Dtype::bf16) return;  // rounds to 2^-8
  constexpr std::int64_t rows = 64, columns = 64;
  Matrix a(rows, 1, in, 1), b(1, columns, in, 2), got(rows, columns, out, 3);
  for (std::int64_t i = 0; i < rows; ++i) a.set(i, 3.0f * static_cast<float>(a.get(i)));
  OnDevice const da(*q, a), db(*q, b), dc(*q, got), dinput(*q, got);
  run({rows, columns, 1, false, false, false, 1.0f, in, out, dc.data(), da.data(), db.data(),
       nullptr, GemmActivation::gelu, dinput.data()});
  dc.read(got);
  double with_tanh = 0.0, with_erf = 0.0;
  for (std::int64_t e = 0; e < rows * columns; ++e) {
    double const x = a.get(e / columns) * b.get(e % columns);
    with_tanh += std::pow(got.get(e) - gelu(x), 2);
    with_erf += std::pow(got.get(e) - 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))), 2);
  }
  EXPECT_LT(with_tanh, with_erf);
}

TEST_P(Products, RepeatBitForBit) {
  auto const [in, out] = GetParam();
  Case const c{{130, 96, 257}, false, true, false, true, 1.0f, in, out};
  Matrix const a = operand_a(c), b = operand_b(c), bias(1, 96, in, 3), old(130, 96, out, 4);
  OnDevice const da(*q, a), db(*q, b), dbias(*q, bias), dc(*q, old), dinput(*q, old);
  Matrix first = old, second = old;
  for (Matrix* result : {&first, &second}) {
    run({130, 96, 257, false, true, false, 1.0f, in, out, dc.data(), da.data(), db.data(),
         dbias.data(), GemmActivation::gelu, dinput.data()});
    dc.read(*result);
  }
  EXPECT_EQ(first.bytes, second.bytes);
}

INSTANTIATE_TEST_SUITE_P(AllDtypes, Products,
                         ::testing::Values(std::tuple{Dtype::fp32, Dtype::fp32},
                                           std::tuple{Dtype::fp16, Dtype::fp16},
                                           std::tuple{Dtype::bf16, Dtype::bf16},
                                           std::tuple{Dtype::fp16, Dtype::fp32},
                                           std::tuple{Dtype::bf16, Dtype::fp32}),
                         [](auto const& info) {
                           return std::string(name_of(std::get<0>(info.param))) + "_to_" +
                                  std::string(name_of(std::get<1>(info.param)));
                         });

/// What only the fake library can tell.
class Contract : public Products {
 protected:
  static test::FakeCublasLt& fake() {
    static test::FakeCublasLt& state = [&]() -> test::FakeCublasLt& {
      SharedLibrary const library({concat("libcublasLt.so.", CUBLAS_VER_MAJOR)});
      test::FakeCublasLtState* find = nullptr;
      TESSERA_VALIDATE(library.find(test::fake_cublaslt_state, find), InternalError,
                       "the fake cuBLASLt does not stand before NVIDIA's in LD_LIBRARY_PATH");
      return *find();
    }();
    return state;
  }
  void SetUp() override {
    if (!fake_device) GTEST_SKIP() << "asks the fake library, and this is NVIDIA's";
    Products::SetUp();
    fake().complaint.clear();
  }
  void TearDown() override {
    if (!fake_device) return;
    EXPECT_EQ(fake().complaint, "");
    fake().refused_epilogues.clear();
    fake().unfit_candidates = 0;
    fake().all_unfit = false;
    Products::TearDown();
  }

  /// A shape that no other test has: its plan is made now.
  static Case fresh(Dtype in = Dtype::bf16, Dtype out = Dtype::bf16, bool bias = true) {
    static std::int64_t depth = 1000;
    return {{16, 24, ++depth}, false, false, false, bias, 1.0f, in, out};
  }
};

TEST_F(Contract, OneCallServesBiasAndGelu) {
  auto const epilogue_after = [&](Product const& p) {
    int const before = fake().products;
    check(p, 2.0);
    EXPECT_EQ(fake().products, before + 1);
    return fake().epilogue.load();
  };
  for (Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    EXPECT_EQ(epilogue_after({fresh(dtype, dtype, false)}),
              std::uint32_t{CUBLASLT_EPILOGUE_DEFAULT});
    EXPECT_EQ(epilogue_after({fresh(dtype, dtype, true)}), std::uint32_t{CUBLASLT_EPILOGUE_BIAS});
    EXPECT_EQ(epilogue_after({fresh(dtype, dtype, false), GemmActivation::gelu}),
              std::uint32_t{CUBLASLT_EPILOGUE_GELU_AUX});
    EXPECT_EQ(epilogue_after({fresh(dtype, dtype, true), GemmActivation::gelu}),
              std::uint32_t{CUBLASLT_EPILOGUE_GELU_AUX_BIAS});
    EXPECT_EQ(epilogue_after({fresh(dtype, dtype, false), GemmActivation::gelu_slope}),
              std::uint32_t{CUBLASLT_EPILOGUE_DGELU});
  }
}

TEST_F(Contract, OneCallServesAnFp32BiasOf16BitProductsWithAnFp32Result) {
  for (Dtype const in : {Dtype::fp16, Dtype::bf16}) {
    Product p{fresh(in, Dtype::fp32)};
    p.has_fp32_bias = true;
    int const before = fake().products;
    check(p);
    EXPECT_EQ(fake().products, before + 1);
    EXPECT_EQ(fake().epilogue.load(), std::uint32_t{CUBLASLT_EPILOGUE_BIAS});
  }
}

TEST_F(Contract, WhatItDoesNotServeIsDoneInSteps) {
  auto const last = [&](Product const& p) {
    check(p, 2.0);
    return fake().epilogue.load();
  };
  // by the rules of the manual: leading dimension, alignment, the bias' dtype, no DGELU with bias
  Case odd = fresh();
  odd.shape.n = 20;
  EXPECT_EQ(last({odd, GemmActivation::gelu}), std::uint32_t{CUBLASLT_EPILOGUE_BIAS});
  EXPECT_EQ(last({fresh(), GemmActivation::gelu, 0, 0, 8}), std::uint32_t{CUBLASLT_EPILOGUE_BIAS});
  EXPECT_EQ(last({fresh(Dtype::bf16, Dtype::fp32)}), std::uint32_t{CUBLASLT_EPILOGUE_DEFAULT});
  EXPECT_EQ(last({fresh(), GemmActivation::gelu_slope}), std::uint32_t{CUBLASLT_EPILOGUE_BIAS});
  // by the setting
  set_device_settings({.gelu = DeviceGelu::separate});
  EXPECT_EQ(last({fresh(), GemmActivation::gelu}), std::uint32_t{CUBLASLT_EPILOGUE_BIAS});
  EXPECT_EQ(last({fresh(Dtype::bf16, Dtype::bf16, false), GemmActivation::gelu_slope}),
            std::uint32_t{CUBLASLT_EPILOGUE_DEFAULT});
  set_device_settings({.gelu = DeviceGelu::fused});
  // by the library
  fake().refused_epilogues = {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU};
  EXPECT_EQ(last({fresh(), GemmActivation::gelu}), std::uint32_t{CUBLASLT_EPILOGUE_BIAS});
  EXPECT_EQ(last({fresh(Dtype::fp16, Dtype::fp16, false), GemmActivation::gelu_slope}),
            std::uint32_t{CUBLASLT_EPILOGUE_DEFAULT});
  fake().refused_epilogues.insert(CUBLASLT_EPILOGUE_BIAS);
  EXPECT_EQ(last({fresh(), GemmActivation::gelu}), std::uint32_t{CUBLASLT_EPILOGUE_DEFAULT});
}

TEST_F(Contract, AProductThatNothingServesIsNamed) {
  fake().all_unfit = true;
  Case const c = fresh(Dtype::fp16, Dtype::fp16, false);
  try {
    check({c});
    FAIL() << "no error";
  } catch (InternalError const& e) {
    EXPECT_EQ(e.what(),
              concat("cuBLASLt has no algorithm for the matrix product [16, 24] fp16 of depth ",
                     c.shape.k, " in fp16: none of 2 candidates runs on this device"));
  }
}

TEST_F(Contract, WhatTheLibraryReportsIsNamedWithItsProduct) {
  Case const c = fresh(Dtype::fp16, Dtype::fp16);
  std::string const product =
      concat("cublasLtMatmul for the matrix product [16, 24] fp16 of depth ", c.shape.k,
             " in fp16, bias: ");
  fake().next_status = CUBLAS_STATUS_EXECUTION_FAILED;
  try {
    check({c});
    FAIL() << "no error";
  } catch (InternalError const& e) {
    EXPECT_EQ(e.what(), product + "another status");
  }
  fake().next_status = CUBLAS_STATUS_ALLOC_FAILED;
  try {
    check({c});
    FAIL() << "no error";
  } catch (OutOfMemoryError const& e) {
    EXPECT_EQ(std::string(e.what()).rfind(product + "no memory; ", 0), 0u) << e.what();
  }
  check({c});  // the next one is served
}

TEST_F(Contract, TheFirstCandidateThatTheDeviceAcceptsIsTaken) {
  fake().unfit_candidates = 3;
  check({fresh()});
}

/// 5 repetitions and one before them for each candidate, then the product.
TEST_F(Contract, CandidatesAreTimedOncePerShapeWithAFileOfAlgorithms) {
  std::string const file = ::testing::TempDir() + "product_algorithms.txt";
  std::filesystem::remove(file);
  auto const products_of = [&](Case const& c, bool measures) {
    set_device_settings({.deterministic = false,
                         .gelu = DeviceGelu::fused,
                         .product_algorithms = measures ? file : ""});
    int const before = fake().products;
    check({c});
    return fake().products - before;
  };
  Case c = fresh(Dtype::bf16, Dtype::fp32, false);  // split sums in four ways
  for (bool const accumulates : {false, true}) {
    c.accumulate = accumulates;
    int const first = products_of(c, true);
    EXPECT_EQ(first % 6, 1);
    EXPECT_GE(first, 2 * 6 + 1);
    EXPECT_EQ(products_of(c, true), 1);
    EXPECT_EQ(products_of(c, false), 1) << "plans are made again, without a measurement";
    EXPECT_EQ(products_of(c, true), 1) << "the file has the algorithm";
  }
  std::filesystem::remove(file);
}

TEST_F(Contract, AlgorithmsAreAskedForOncePerShapeAndAlignment) {
  Case const c = fresh();
  int const before = fake().heuristics;
  for (int i = 0; i < 3; ++i) check({c, GemmActivation::gelu}, 2.0);
  EXPECT_EQ(fake().heuristics, before + 1);
  for (int i = 0; i < 2; ++i)
    check({c, GemmActivation::gelu, 0, 2}, 2.0);  // an algorithm may read the bias by vectors
  EXPECT_EQ(fake().heuristics, before + 2);
  for (int i = 0; i < 2; ++i) check({c, GemmActivation::gelu, 0, 0, 16}, 2.0);
  EXPECT_EQ(fake().heuristics, before + 3);
  for (int i = 0; i < 2; ++i) check({c, GemmActivation::gelu, 16}, 2.0);
  EXPECT_EQ(fake().heuristics, before + 4);
  for (bool left : {true, false}) {
    Product p{c, GemmActivation::gelu};
    (left ? p.shift_a : p.shift_b) = 2;
    for (int i = 0; i < 2; ++i) check(p, 2.0);
  }
  EXPECT_EQ(fake().heuristics, before + 6);
}

/// Split sums meet in fp32 and in a fixed order; other orders of fp32 sums only where determinism
/// is not asked for.
TEST_F(Contract, OddLongDimensionsTakeTwoProducts) {
  for (Shape shape : {Shape{1032, 16, 24}, Shape{1029, 16, 24}, Shape{16, 1029, 24},
                      Shape{16, 24, 1029}, Shape{13, 24, 16}}) {
    int const before = fake().products;
    Product p{{shape, false, false, false, false, 1.0f, Dtype::bf16, Dtype::fp32}};
    p.gap_a = (shape.k + 7) / 8 * 8 - shape.k, p.gap_c = (shape.n + 7) / 8 * 8 - shape.n;
    p.gap_b = p.gap_c;
    check(p);
    int const expected = std::max({shape.m, shape.n, shape.k}) == 1029 ? 2 : 1;
    EXPECT_EQ(fake().products - before, expected)
        << shape.m << " x " << shape.n << " x " << shape.k;
  }
}

TEST_F(Contract, SplitSums) {
  for (bool deterministic : {true, false}) {
    set_device_settings({.deterministic = deterministic});
    check({fresh()});
    EXPECT_EQ(fake().reduction, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    check({fresh(Dtype::bf16, Dtype::fp32, false)});
    EXPECT_EQ(fake().reduction, std::uint32_t{deterministic ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                                            : CUBLASLT_REDUCTION_SCHEME_INPLACE});
  }
}

TEST_F(Contract, Tf32IsForFp32ProductsThatAskForIt) {
  set_device_settings({.tf32 = true});
  EXPECT_NO_FATAL_FAILURE(check({fresh(Dtype::bf16)}));
  EXPECT_EQ(fake().compute, std::uint32_t{CUBLAS_COMPUTE_32F});
  Case const c = fresh(Dtype::fp32, Dtype::fp32);
  Matrix const a = operand_a(c), b = operand_b(c), bias(1, c.shape.n, c.in, 3),
               old(c.shape.m, c.shape.n, c.out, 4);
  OnDevice const da(*q, a), db(*q, b), dc(*q, old);
  run({c.shape.m, c.shape.n, c.shape.k, false, false, false, 1.0f, c.in, c.out, dc.data(),
       da.data(), db.data()});
  EXPECT_EQ(fake().compute, std::uint32_t{CUBLAS_COMPUTE_32F_FAST_TF32});
  Matrix got = old;
  dc.read(got);
  Case without = c;
  without.bias = false;
  for (std::int64_t e = 0; e < c.shape.m * c.shape.n;
       ++e)  // 10 bits of each factor: 2^-10 of the sum of magnitudes, far less as signs vary
    EXPECT_NEAR(got.get(e), expected(without, a, b, bias, old, e / c.shape.n, e % c.shape.n),
                0x1p-10 * static_cast<double>(c.shape.k));
}

/// Depth along both operands' rows, scales in device memory, mixed formats.
TEST_F(Contract, Fp8ProductsFollowTheManual) {
  for (auto const& [format_a, format_b] : {std::pair{Float8::e4m3, Float8::e4m3},
                                           {Float8::e5m2, Float8::e4m3},
                                           {Float8::e4m3, Float8::e5m2}})
    for (Dtype const out : {Dtype::bf16, Dtype::fp32})
      for (bool const accumulate : {false, true}) {
        std::int64_t const m = 20, n = 32, k = 48;
        Matrix a(m, k / 4, Dtype::fp32, 1), b(n, k / 4, Dtype::fp32, 2), c(m, n, out, 3),
            scales(1, 2, Dtype::fp32, 4);
        for (Matrix* operand : {&a, &b})  // small numbers and no NaN
          for (std::byte& code : operand->bytes) code &= std::byte{0xB3};
        scales.set(0, 0x1p-4f), scales.set(1, 0x1p-6f);
        Matrix const old = c;
        OnDevice const da(*q, a), db(*q, b), dc(*q, c), ds(*q, scales);
        GemmProblem p{m,    n,           k,   false,     true,      accumulate,
                      1.0f, Dtype::bf16, out, dc.data(), da.data(), db.data()};
        p.format_a = format_a, p.format_b = format_b;
        p.scale_a = static_cast<float const*>(ds.data());
        p.scale_b = p.scale_a + 1;
        run(p);
        dc.read(c);
        auto const value = [](Matrix const& of, std::int64_t i, Float8 format) {
          float8_e4m3 x;
          float8_e5m2 y;
          x.bits = y.bits = static_cast<std::uint8_t>(of.bytes[static_cast<std::size_t>(i)]);
          return static_cast<double>(format == Float8::e4m3 ? static_cast<float>(x)
                                                            : static_cast<float>(y));
        };
        for (std::int64_t e = 0; e < m * n; ++e) {
          double sum = 0.0;
          for (std::int64_t l = 0; l < k; ++l)
            sum += value(a, e / n * k + l, format_a) * value(b, e % n * k + l, format_b);
          double const want = sum * 0x1p-10 + (accumulate ? old.get(e) : 0.0);
          ASSERT_NEAR(c.get(e), want, std::abs(want) * unit_of(out) + 1e-6);
        }
      }
}

TEST_F(Contract, ProductsArePlannedForTheMultiprocessorsThatAreLeft) {
  Case const c = fresh(Dtype::bf16);
  for (int const count : {0, 100, 0}) {
    set_device_settings({.product_multiprocessors = count});
    EXPECT_NO_FATAL_FAILURE(check({c}));
    EXPECT_EQ(fake().multiprocessors, count);
  }
}

TEST_F(Contract, NothingIsAllocatedOnceAStreamWasUsed) {
  Case const c = fresh();
  auto const workspace = [] {
    for (auto const& entry : memory::MemoryTracker::of_device().entries())
      if (entry.name == "matrix product" && entry.purpose == memory::Purpose::workspace)
        return entry.bytes;
    return std::size_t{0};
  };
  Matrix const a = operand_a(c), b = operand_b(c), old(16, 24, c.out, 4);
  auto const other = memory::make_stream_queue("other");
  OnDevice const da(*q, a), db(*q, b), dc(*q, old);
  GemmProblem const p{16,   24,   c.shape.k, false,     false,     false,
                      1.0f, c.in, c.out,     dc.data(), da.data(), db.data()};
  detail::cublaslt_product(*q, p);
  std::size_t const one = workspace();
  auto const costs = fake_device->costs();
  EXPECT_GE(one, std::size_t{32} << 20);
  for (bool accumulate :
       {false, true, false}) {  // a new shape asks the heuristic; it takes no device memory
    GemmProblem next = p;
    next.accumulate = accumulate;
    detail::cublaslt_product(*q, next);
  }
  EXPECT_EQ(workspace(), one);
  EXPECT_EQ(fake_device->costs(), costs);
  detail::cublaslt_product(*other, p);
  std::size_t const two = workspace();
  detail::cublaslt_product(*other, p);
  EXPECT_EQ(workspace(), two);
  EXPECT_LE(two, one + (std::size_t{32} << 20));
  for (Queue* queue : {q.get(), other.get()}) queue->record().wait("the products", deadline);
}

TEST_F(Contract, EveryPlanOwnsItsDescriptorsAndNothingElseStays) {
  check({fresh()});
  int const descriptors = fake().descriptors, layouts = fake().layouts;
  EXPECT_EQ(layouts, 3 * descriptors);
  EXPECT_EQ(fake().preferences, 0);
  EXPECT_EQ(fake().handles, 1);
  fake().refused_epilogues = {CUBLASLT_EPILOGUE_BIAS};
  check({fresh()});  // a plan without an algorithm, and one for the product with the bias already
                     // in place
  EXPECT_EQ(fake().descriptors, descriptors + 2);
  EXPECT_EQ(fake().layouts, layouts + 6);
  EXPECT_EQ(fake().preferences, 0);
}

}  // namespace
}  // namespace tessera::kernels

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();  // needs no device
  using namespace tessera;
  bool const real = argc > 1 && std::string_view(argv[1]) == "device";
  std::optional<test::FakeDevice> fake;
  memory::RuntimeOptions options;
  if (real) {
    auto const found = memory::find_devices();
    if (found.count == 0) {
      std::printf("skipped: %s\n", found.reason.c_str());
      return 77;
    }
    options.device = 0;
  } else {
    fake.emplace();
    fake->capacity = std::size_t{512} << 20;
    kernels::fake_device = &*fake;
  }
  memory::Runtime const runtime(options);
  return RUN_ALL_TESTS();
}
