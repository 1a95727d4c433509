/// What a device computes in its flat kernels, compared with the host: bits that do not depend on
/// where operands lie, conversions of every fp16 number, AdamW and the squares of gradients.
/// Without arguments over a device made of host memory, which tries the test itself; with "device"
/// on a GPU.
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "../kernels/flat_case.hpp"
#include "tessera/kernels/elementwise/gradient_statistics.hpp"
#include "tessera/optim/optimizer.hpp"

namespace tessera::kernels::test {
namespace {

class Flat : public KernelTest {
 protected:
  std::unique_ptr<Queue> stream = memory::make_stream_queue("compute");
};
INSTANTIATE_TEST_SUITE_P(Dtypes, Flat, all_dtypes(), dtype_test_name);

TEST_P(Flat, GivesTheHostsNumbersAndTheSameBitsWhereverOperandsLie) {
  for (auto const& kernel : flat_kernels(dtype))
    for (std::int64_t n : {3, 1025, 5000}) {
      Array const host = run_flat(*queue, kernel, n, {}), device = run_flat(*stream, kernel, n, {});
      SCOPED_TRACE(kernel.name + ", " + std::to_string(n) + " elements");
      if (kernel.rounds_once) {
        ASSERT_TRUE(device == host);
      } else {
        ASSERT_NO_FATAL_FAILURE(expect_close(device, host.values()));
      }
      for (auto const& place : flat_places()) {
        SCOPED_TRACE("at " + std::to_string(place.out) + ", " + std::to_string(place.a) + ", " +
                     std::to_string(place.b));
        ASSERT_TRUE(run_flat(*stream, kernel, n, place) == device);
      }
    }
}

template <class T>
T element(Array const& array, std::int64_t i) {
  T out;
  std::memcpy(&out,
              static_cast<std::byte const*>(array.data()) + static_cast<std::size_t>(i) * sizeof(T),
              sizeof(T));
  return out;
}
template <class T>
void set_bits(Array& array, std::int64_t i, T bits) {
  std::memcpy(static_cast<std::byte*>(array.data()) + static_cast<std::size_t>(i) * sizeof(T),
              &bits, sizeof(T));
}

class Conversions : public ::testing::Test {
 protected:
  Array converted(Array const& in, Dtype to) {
    Guarded const from(*stream, in, 0), out(*stream, Array(to, {in.numel()}), 0);
    cast(*stream, out.view(), from.view());
    return out.read();
  }
  std::unique_ptr<Queue> stream = memory::make_stream_queue("compute");
};

/// Processors differ in the payload of a NaN, so that only its kind and sign are compared.
TEST_F(Conversions, EveryFp16NumberToFp32) {
  Array in(Dtype::fp16, {65536});
  for (std::int64_t i = 0; i < 65536; ++i) set_bits(in, i, static_cast<std::uint16_t>(i));
  Array const out = converted(in, Dtype::fp32);
  for (std::int64_t i = 0; i < 65536; ++i) {
    auto const got = element<std::uint32_t>(out, i),
               want = std::bit_cast<std::uint32_t>(static_cast<float>(element<float16>(in, i)));
    if (std::isnan(std::bit_cast<float>(want))) {
      ASSERT_TRUE(std::isnan(std::bit_cast<float>(got)) && (got >> 31) == (want >> 31)) << i;
    } else {
      ASSERT_EQ(got, want) << i;
    }
  }
}

/// Every fp16 number, the middle to the next one, and the fp32 numbers next to both; NaN with
/// either sign.
TEST_F(Conversions, Fp32RoundsToFp16AndBf16AsOnTheHost) {
  std::vector<std::uint32_t> bits{0x7FC00000u, 0xFFC00000u, 0x7F800001u, 0xFF800001u};
  for (std::uint32_t i = 0; i < 65536; ++i) {
    float16 half;
    half.bits = static_cast<std::uint16_t>(i);
    std::uint32_t const here = std::bit_cast<std::uint32_t>(static_cast<float>(half));
    for (std::uint32_t const at : {here, here + 0x1000u})
      for (std::uint32_t const beside : {at - 1u, at, at + 1u}) bits.push_back(beside);
    for (std::uint32_t const beside : {i << 16 | 0x7FFFu, i << 16 | 0x8000u, i << 16 | 0x8001u})
      bits.push_back(beside);
  }
  Array in(Dtype::fp32, {static_cast<std::int64_t>(bits.size())});
  for (std::size_t i = 0; i < bits.size(); ++i) set_bits(in, static_cast<std::int64_t>(i), bits[i]);
  Array const to_fp16 = converted(in, Dtype::fp16), to_bf16 = converted(in, Dtype::bf16);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    float const value = std::bit_cast<float>(bits[i]);
    ASSERT_EQ(element<std::uint16_t>(to_fp16, static_cast<std::int64_t>(i)), float16::round(value))
        << std::hex << bits[i];
    ASSERT_EQ(element<std::uint16_t>(to_bf16, static_cast<std::int64_t>(i)), bfloat16::round(value))
        << std::hex << bits[i];
  }
}

/// The state after a step over one segment of n elements, each array `shift` elements after a
/// border.
struct Stepped {
  Array master, exp_avg, exp_avg_sq, weights;
  bool operator==(Stepped const&) const = default;
};
Stepped adamw_step(Queue& q, Dtype dtype, std::int64_t n, std::int64_t shift,
                   GradientControl const& said) {
  auto const operand = [&](Dtype type, std::uint64_t seed, double size, double middle) {
    return Guarded(q, Array(type, {n}).randomize(seed, size, middle), shift);
  };
  Guarded const p = operand(Dtype::fp32, 1, 1.0, 0.0), m = operand(Dtype::fp32, 2, 0.1, 0.0),
                v = operand(Dtype::fp32, 3, 0.005, 0.005), g = operand(dtype, 4, 3.0, 0.0),
                w = operand(dtype, 5, 1.0, 0.0);
  memory::Buffer const control("control", memory::Purpose::workspace, sizeof(GradientControl),
                               memory::memory_space_of(q));
  memory::copy(q, control.data(), &said, sizeof(GradientControl));
  auto const spec = optim::make_spec("AdamW", {{"weight_decay", 0.1}}, optim::one_group());
  optim::make_optimizer(spec)->update(
      q, {{{p.data(), {m.data(), v.data()}, g.data(), w.data(), n}}, dtype, dtype},
      {1, 1e-2, static_cast<GradientControl const*>(control.data())});
  finish(q);
  return {p.read(), m.read(), v.read(), w.read()};
}

TEST_P(Flat, AdamWGivesTheHostsNumbersAndReadsItsControl) {
  for (std::int64_t n : {5, 257, 4099}) {
    Stepped const host = adamw_step(*queue, dtype, n, 0, {0.37, 0}),
                  device = adamw_step(*stream, dtype, n, 0, {0.37, 0});
    ASSERT_NO_FATAL_FAILURE(expect_close(device.master, host.master.values(), 3e-7));
    ASSERT_NO_FATAL_FAILURE(expect_close(device.exp_avg, host.exp_avg.values(), 3e-7));
    ASSERT_NO_FATAL_FAILURE(expect_close(device.exp_avg_sq, host.exp_avg_sq.values(), 3e-7));
    ASSERT_NO_FATAL_FAILURE(expect_close(device.weights, host.weights.values(), 3e-7));
    for (std::int64_t shift : {0, 1, 2, 7})
      EXPECT_TRUE(adamw_step(*stream, dtype, n, shift, GradientControl{0.37, 0}) == device)
          << shift;
    EXPECT_TRUE(adamw_step(*stream, dtype, n, 0, GradientControl{0.37, 1}).master ==
                Array(Dtype::fp32, {n}).randomize(1, 1.0));
  }
}

TEST_P(Flat, SquaresOfGradients) {
  for (std::int64_t n : {1, 1000, 16384, 70001}) {
    Array values = Array(dtype, {n}).randomize(6, 100.0);
    memory::Buffer const result("sums", memory::Purpose::workspace, 2 * sizeof(double),
                                memory::MemorySpace::device);
    auto const sums = [&](std::int64_t shift) {
      Guarded const gradient(*stream, values, shift);
      double out[2];
      gradient_statistics(*stream, static_cast<double*>(result.data()),
                          {{gradient.data(), n}, {gradient.data(), n / 2}}, dtype);
      memory::copy(*stream, out, result.data(), sizeof out);
      finish(*stream);
      return std::pair(out[0], out[1]);
    };
    double want = 0.0;
    for (std::int64_t i = 0; i < n; ++i)
      want += (i < n / 2 ? 2.0 : 1.0) * values.get(i) * values.get(i);
    auto const first = sums(0);
    EXPECT_NEAR(first.first, want, 1e-13 * want);
    EXPECT_EQ(first.second, 0.0);
    for (std::int64_t shift : {0, 1, 5}) EXPECT_EQ(sums(shift), first) << shift;
    values.set(n - 1, std::numeric_limits<double>::infinity());
    EXPECT_EQ(sums(0).second, 1.0);
  }
}

}  // namespace
}  // namespace tessera::kernels::test
