#include "tessera/kernels/attention/rotary.hpp"

#include "decoder_oracle.hpp"
#include "fake_device.hpp"
#include "tessera/kernels/attention/rotary_tables.hpp"

namespace tessera::kernels::test {
namespace {

/// Heads inside larger rows, and tables for `positions`.
struct Case {
  RotaryShape shape;
  std::int64_t head_stride, row;
  Array in, out, cos, sin, firsts, each;

  static constexpr std::int64_t positions = 64, begin = 8;

  Case(RotaryShape const& s, std::int64_t stride)
      : shape(s),
        head_stride(stride > 0 ? stride : s.head_dim),
        row(s.heads * head_stride + begin + 8),
        in(s.dtype, {s.batch, s.sequence, row}),
        out(s.dtype, {s.batch, s.sequence, row}),
        cos(Dtype::fp32, {positions, s.rotary_dim / 2}),
        sin(Dtype::fp32, {positions, s.rotary_dim / 2}),
        firsts(Dtype::int32, {s.batch}),
        each(Dtype::int32, {s.batch, s.sequence}) {
    in.randomize(1, 2.0);
    out.randomize(2);
    RotaryOptions options;
    options.rotary_dim = s.rotary_dim;
    options.theta = 50.0;
    rotary_tables(rotary_frequencies(options), {0, positions, s.dtype}, cos.view().as<float>(),
                  sin.view().as<float>());
    for (std::int64_t b = 0; b < s.batch; ++b) firsts.set(b, 5.0 * static_cast<double>(b));
    for (std::int64_t i = 0; i < each.numel(); ++i) each.set(i, static_cast<double>(i * 7 % 20));
  }
  HeadsView view(Array& x) const {
    return {static_cast<std::byte*>(x.data()) + begin * size_of(x.dtype()), row, head_stride};
  }
  enum class By { first, row, position };
  Rotation rotation(std::int64_t first, By by) {
    RotaryPositions at{first, {}};
    if (by == By::row) at.first_of_row = firsts.view();
    if (by == By::position) at.each = each.view();
    return {shape, {cos.view(), sin.view()}, at};
  }
  void run(Queue& q, Rotation const& how, Array& to, Array& from, RotaryDirection direction) {
    rotate_heads(q, how, view(to), view(from), direction);
    q.record().wait("rotations", std::chrono::seconds(60));
  }
  Reals reference(Rotation const& how, double sign) const {
    Reals want = out.values();
    int const half = shape.rotary_dim / 2;
    for (std::int64_t p = 0; p < shape.batch * shape.sequence; ++p) {
      std::int64_t const b = p / shape.sequence;
      double const in_row = static_cast<double>(p % shape.sequence) +
                            (how.positions.first_of_row.empty() ? 0.0 : firsts.get(b));
      auto const position =
          how.positions.first +
          static_cast<std::int64_t>(how.positions.each.empty() ? in_row : each.get(p));
      for (int h = 0; h < shape.heads; ++h)
        for (int i = 0; i < shape.head_dim; ++i) {
          std::int64_t const head = p * row + begin + h * head_stride;
          auto const at = static_cast<std::size_t>(head + i);
          if (i >= 2 * half) {
            want[at] = in.get(head + i);
            continue;
          }
          double const c = cos.get(position * half + i % half),
                       s = sign * sin.get(position * half + i % half);
          want[at] = in.get(head + i) * c +
                     (i < half ? -in.get(head + i + half) : in.get(head + i - half)) * s;
        }
    }
    return want;
  }
};

void check(Queue& q, Dtype dtype) {
  struct Widths {
    int head_dim, rotary_dim;
    std::int64_t stride;
  };
  for (Widths const w : {Widths{2, 2, 0},
                         {10, 6, 0},
                         {64, 64, 0},
                         {64, 16, 0},
                         {80, 32, 240},
                         {16, 16, 24},
                         {9, 4, 0}})
    for (auto const by : {Case::By::first, Case::By::row, Case::By::position})
      for (auto direction : {RotaryDirection::forward, RotaryDirection::inverse}) {
        SCOPED_TRACE(::testing::Message() << w.rotary_dim << " of " << w.head_dim);
        Case c({dtype, 2, 7, 3, w.head_dim, w.rotary_dim}, w.stride);
        Rotation const how = c.rotation(by == Case::By::first ? 40 : 2, by);
        Reals const want = c.reference(how, direction == RotaryDirection::forward ? 1.0 : -1.0);
        c.run(q, how, c.out, c.in, direction);
        expect_close(c.out, want, 2e-7);
        Array here = c.in;
        c.run(q, how, here, here, direction);
        for (std::int64_t p = 0; p < 14; ++p)
          for (int h = 0; h < 3; ++h)
            for (int i = 0; i < w.head_dim; ++i) {
              std::int64_t const at = p * c.row + Case::begin + h * c.head_stride + i;
              ASSERT_EQ(here.get(at), c.out.get(at)) << "in place";
            }
      }
}

TESSERA_KERNEL_SUITE(Rotary);

TEST_P(Rotary, RotatesPairs) { check(*queue, dtype); }

TEST_P(Rotary, RotatesPairsOnAStream) {
  tessera::test::FakeDevice device;
  check(*memory::make_stream_queue("compute"), dtype);
}

TEST_P(Rotary, InverseUndoesForward) {
  Case c({dtype, 2, 9, 4, 64, 32}, 0);
  Rotation const how = c.rotation(3, Case::By::first);
  Array const before = c.in;
  c.run(*queue, how, c.in, c.in, RotaryDirection::forward);
  EXPECT_FALSE(c.in == before);
  c.run(*queue, how, c.in, c.in, RotaryDirection::inverse);
  // tables of 16 bits are rotations only to their rounding
  expect_close(c.in, before.values(), 1e-6 + (dtype == Dtype::fp32 ? 0.0 : 8 * rounding(dtype)));
}

TEST_P(Rotary, ScoresDependOnDistancesOnly) {
  if (dtype != Dtype::fp32) return;
  auto const score = [&](std::int64_t query, std::int64_t key) {
    Case a({dtype, 1, 1, 1, 16, 16}, 0), b = a;
    b.in.randomize(7);
    a.run(*queue, a.rotation(query, Case::By::first), a.in, a.in, RotaryDirection::forward);
    b.run(*queue, b.rotation(key, Case::By::first), b.in, b.in, RotaryDirection::forward);
    double sum = 0;
    for (std::int64_t i = Case::begin; i < Case::begin + 16; ++i) sum += a.in.get(i) * b.in.get(i);
    return sum;
  };
  EXPECT_NEAR(score(9, 4), score(30, 25), 1e-5);
  EXPECT_GT(std::abs(score(9, 4) - score(9, 5)), 1e-3);
}

TEST(RotaryShapes, AreChecked) {
  auto const queue = memory::make_inline_queue("compute");
  Case c({Dtype::fp32, 1, 1, 1, 8, 8}, 0);
  for (int rotary_dim : {0, 3, 10}) {
    Rotation how = c.rotation(0, Case::By::first);
    how.shape.rotary_dim = rotary_dim;
    EXPECT_THROW(rotate_heads(*queue, how, c.view(c.in), c.view(c.in), RotaryDirection::forward),
                 ConfigError)
        << rotary_dim;
  }
}

TEST(RotaryOracle, EqualsTransformers) {
  auto const queue = memory::make_inline_queue("compute");
  auto const stored = decoder_oracle("rotary");
  ASSERT_EQ(stored.size(), 4u);
  for (auto const& c : stored.as_array()) {
    Dtype const dtype = dtype_of(c);
    RotaryShape const shape{dtype,
                            c.at("batch").as_int(),
                            c.at("length").as_int(),
                            static_cast<int>(c.at("heads").as_int()),
                            static_cast<int>(c.at("head_dim").as_int()),
                            static_cast<int>(c.at("rotary_dim").as_int())};
    SCOPED_TRACE(::testing::Message() << name_of(dtype) << ", " << shape.rotary_dim);
    RotaryOptions options;
    options.rotary_dim = shape.rotary_dim;
    options.theta = c.at("theta").as_double();
    Array cos(Dtype::fp32, {64, shape.rotary_dim / 2}), sin = cos;
    rotary_tables(rotary_frequencies(options), {0, 64, dtype}, cos.view().as<float>(),
                  sin.view().as<float>());
    Rotation const how{shape, {cos.view(), sin.view()}, {c.at("first").as_int(), {}}};
    Array x = array_of(c.at("in"), dtype), dx = array_of(c.at("dout"), dtype);
    std::int64_t const row = std::int64_t{shape.heads} * shape.head_dim;
    rotate_heads(*queue, how, {x.data(), row}, {x.data(), row}, RotaryDirection::forward);
    rotate_heads(*queue, how, {dx.data(), row}, {dx.data(), row}, RotaryDirection::inverse);
    // PyTorch rounds both products before it adds them
    double const error = dtype == Dtype::fp32 ? 3e-7 : 2 * rounding(dtype);
    expect_close(x, reals(c.at("out")), error);
    expect_close(dx, reals(c.at("din")), error);
  }
}

}  // namespace
}  // namespace tessera::kernels::test
