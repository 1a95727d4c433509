#include "optimizers/table.hpp"

#include <cmath>
#include <cstring>
#include <tuple>

#include "trajectory.hpp"
#include "update_by.hpp"

namespace tessera::optim::test {
namespace {

using kernels::GradientControl;
using kernels::test::UpdateSegment;
using memory::Queue;

float read(void const* data, Dtype dtype, std::size_t i) {
  if (dtype == Dtype::fp32) return static_cast<float const*>(data)[i];
  if (dtype == Dtype::fp16) return static_cast<float16 const*>(data)[i];
  return static_cast<bfloat16 const*>(data)[i];
}

std::vector<std::byte> encode(Floats const& values, Dtype dtype) {
  std::vector<std::byte> out(values.size() * size_of(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == Dtype::fp32) reinterpret_cast<float*>(out.data())[i] = values[i];
    if (dtype == Dtype::fp16) reinterpret_cast<float16*>(out.data())[i] = float16(values[i]);
    if (dtype == Dtype::bf16) reinterpret_cast<bfloat16*>(out.data())[i] = bfloat16(values[i]);
  }
  return out;
}

Floats numbers(std::int64_t n, std::uint64_t stream, float scale = 1.0f) {
  Philox const random{3, stream};
  Floats out(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = scale * (2.0f * random.uniform(i) - 1.0f);
  return out;
}

struct State {
  Floats p, m, v;
  explicit State(std::int64_t n)
      : p(numbers(n, 1)), m(numbers(n, 2, 0.1f)), v(numbers(n, 3, 0.01f)) {
    for (auto& x : v) x = std::abs(x);
  }
};

UpdateSegment segment_of(State& s, void const* gradient, void* out, double lr, double decay,
                         std::int64_t first = 0, std::int64_t n = -1) {
  std::int64_t const numel = n < 0 ? static_cast<std::int64_t>(s.p.size()) : n;
  return {s.p.data() + first,
          {s.m.data() + first, s.v.data() + first},
          gradient,
          out,
          numel,
          lr,
          decay};
}

struct AdamWStep : kernels::test::ElementwiseUpdate {
  int t;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  bool adam_l2 = false;
};

AdamWStep step_number(int t) { return {{}, t}; }

void adamw(Queue& q, AdamWStep const& s) {
  update_by(make_spec(s.adam_l2 ? "Adam" : "AdamW",
                      {{"beta1", s.beta1}, {"beta2", s.beta2}, {"eps", s.epsilon}}),
            s.t, q, s);
}

/// The published algorithm, in double.
struct Reference {
  std::vector<double> p, m, v;
  explicit Reference(State const& s)
      : p(s.p.begin(), s.p.end()), m(s.m.begin(), s.m.end()), v(s.v.begin(), s.v.end()) {}
  void step(std::size_t i, double g, AdamWStep const& c, double lr, double decay) {
    if (c.control) g *= c.control->gradient_factor;
    if (c.adam_l2) g += decay * p[i];
    m[i] = c.beta1 * m[i] + (1 - c.beta1) * g;
    v[i] = c.beta2 * v[i] + (1 - c.beta2) * g * g;
    if (!c.adam_l2) p[i] -= lr * decay * p[i];
    p[i] -= lr * (m[i] / (1 - std::pow(c.beta1, c.t))) /
            (std::sqrt(v[i] / (1 - std::pow(c.beta2, c.t))) + c.epsilon);
  }
};

class AdamWDtypes : public ::testing::TestWithParam<std::tuple<Dtype, Dtype>> {
 protected:
  std::unique_ptr<Queue> q = memory::make_inline_queue("compute");
  GradientControl control{0.37, 0};
};

TEST_P(AdamWDtypes, EqualsTheDoubleReference) {
  auto const [gradient_dtype, weights_dtype] = GetParam();
  for (std::int64_t n : {1, 15, 16, 4096, 4097, 20011})
    for (bool l2 : {false, true}) {
      State s(n);
      Reference reference(s);
      auto const gradient = encode(numbers(n, 4, 3.0f), gradient_dtype);
      std::vector<std::byte> out(static_cast<std::size_t>(n) * size_of(weights_dtype));
      AdamWStep step = step_number(7);
      step.adam_l2 = l2;
      step.control = &control;
      step.gradient_dtype = gradient_dtype;
      step.weights_dtype = weights_dtype;
      step.segments = {segment_of(s, gradient.data(), out.data(), 1e-2, 0.1)};
      adamw(*q, step);
      for (std::size_t i = 0; i < s.p.size(); ++i) {
        reference.step(i, read(gradient.data(), gradient_dtype, i), step, 1e-2, 0.1);
        ASSERT_NEAR(s.p[i], reference.p[i], 3e-7) << i << " of " << n;
        ASSERT_NEAR(s.m[i], reference.m[i], 1e-7);
        ASSERT_NEAR(s.v[i], reference.v[i], 1e-8);
        ASSERT_EQ(read(out.data(), weights_dtype, i),
                  read(encode({s.p[i]}, weights_dtype).data(), weights_dtype, 0));
      }
    }
}

INSTANTIATE_TEST_SUITE_P(
    AllDtypes, AdamWDtypes,
    ::testing::Combine(::testing::Values(Dtype::fp32, Dtype::fp16, Dtype::bf16),
                       ::testing::Values(Dtype::fp32, Dtype::fp16, Dtype::bf16)),
    [](auto const& info) {
      return std::string(name_of(std::get<0>(info.param))) + "_to_" +
             std::string(name_of(std::get<1>(info.param)));
    });

/// Stored by tests/oracles/adamw.py. Both sides compute in fp32 in the same order; they may differ
/// by single roundings.
TEST(AdamW, EqualsTorch) {
  auto q = memory::make_inline_queue("compute");
  auto const oracle = ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/adamw.json");
  for (auto const& c : oracle.at("cases").as_array()) {
    State s(0);
    s.p = floats_of(oracle.at("start"));
    s.m.assign(s.p.size(), 0.0f);
    s.v.assign(s.p.size(), 0.0f);
    auto const& betas = c.at("betas").as_array();
    int t = 0;
    for (auto const& row : oracle.at("gradients").as_array()) {
      Floats const g = floats_of(row);
      AdamWStep step = step_number(++t);
      step.beta1 = betas[0].as_double();
      step.beta2 = betas[1].as_double();
      step.epsilon = c.at("eps").as_double();
      step.adam_l2 = c.at("optimizer").as_string() == "Adam";
      step.segments = {segment_of(s, g.data(), nullptr, c.at("lr").as_double(),
                                  c.at("weight_decay").as_double())};
      adamw(*q, step);
    }
    Floats const p = floats_of(c.at("weight")), m = floats_of(c.at("exp_avg")),
                 v = floats_of(c.at("exp_avg_sq"));
    for (std::size_t i = 0; i < p.size(); ++i) {
      EXPECT_NEAR(s.p[i], p[i], 3e-7 * (1 + std::abs(p[i]))) << c.dump() << " element " << i;
      EXPECT_NEAR(s.m[i], m[i], 1e-6 * std::abs(m[i]) + 1e-12);
      EXPECT_NEAR(s.v[i], v[i], 1e-6 * std::abs(v[i]) + 1e-20);
    }
  }
}

/// More segments than one launch holds, of all lengths, with and without decay and 16-bit weights:
/// each is as if it were the only one.
TEST(AdamW, SegmentsKeepTheirOwnCoefficients) {
  auto q = memory::make_inline_queue("compute");
  std::int64_t const lengths[] = {0, 1, 5, 4096, 4097, 777};
  std::int64_t total = 0;
  for (int k = 0; k < 130; ++k) total += lengths[k % 6];
  State together(total), alone(total);
  Floats const g = numbers(total, 4);
  std::vector<bfloat16> out(static_cast<std::size_t>(total)), out_alone(out);
  AdamWStep all = step_number(2);
  all.weights_dtype = Dtype::bf16;
  std::int64_t at = 0;
  for (int k = 0; k < 130; ++k) {
    std::int64_t const n = lengths[k % 6];
    bool const writes = k % 4 != 0;
    double const lr = 1e-2, decay = k % 2 ? 0.1 * k : 0.0;
    all.segments.push_back(
        segment_of(together, g.data() + at, writes ? out.data() + at : nullptr, lr, decay, at, n));
    AdamWStep one = all;
    one.segments = {segment_of(alone, g.data() + at, writes ? out_alone.data() + at : nullptr, lr,
                               decay, at, n)};
    adamw(*q, one);
    at += n;
  }
  adamw(*q, all);
  EXPECT_EQ(together.p, alone.p);
  EXPECT_EQ(together.m, alone.m);
  EXPECT_EQ(together.v, alone.v);
  EXPECT_EQ(std::memcmp(out.data(), out_alone.data(), out.size() * 2), 0);
}

/// An element's new bits do not depend on where a partition begins.
TEST(AdamW, DoesNotDependOnThePartition) {
  auto q = memory::make_inline_queue("compute");
  std::int64_t const n = 10007;
  Floats const g = numbers(n, 4);
  State whole(n), parts(n);
  AdamWStep step = step_number(3);
  step.segments = {segment_of(whole, g.data(), nullptr, 1e-3, 0.1)};
  adamw(*q, step);
  for (std::int64_t at = 0; at < n; at += 333) {
    step.segments = {segment_of(parts, g.data() + at, nullptr, 1e-3, 0.1, at,
                                std::min<std::int64_t>(333, n - at))};
    adamw(*q, step);
  }
  EXPECT_EQ(whole.p, parts.p);
  EXPECT_EQ(whole.m, parts.m);
  EXPECT_EQ(whole.v, parts.v);
}

TEST(AdamW, RunsOnAWorkerQueueAfterTheStepIsGone) {
  auto q = memory::make_worker_queue("lane");
  auto inline_q = memory::make_inline_queue("compute");
  State s(5000), expected(5000);
  Floats const g = numbers(5000, 4);
  {
    AdamWStep step = step_number(1);
    step.segments = {segment_of(s, g.data(), nullptr, 1e-3, 0.1)};
    adamw(*q, step);
    step.segments = {segment_of(expected, g.data(), nullptr, 1e-3, 0.1)};
    adamw(*inline_q, step);
  }
  q->record().wait("the optimizer step", std::chrono::seconds(60));
  EXPECT_EQ(s.p, expected.p);
}

/// The device's way, taken by a stream made of a host thread: packs where all arrays of a segment
/// share their borders, else and at a segment's ends element by element. Every element is updated
/// once, with the host's bits, and none between the segments is touched.
TEST_P(AdamWDtypes, ADevicesWayGivesTheSameBitsWhereverSegmentsLie) {
  auto const [gradient_dtype, weights_dtype] = GetParam();
  tessera::test::FakeDevice device;
  auto const stream = memory::make_stream_queue("compute");
  std::int64_t const lengths[] = {0, 1, 2, 5, 255, 256, 257, 1000, 1025},
                     gaps[] = {0, 1, 2, 3, 4, 7};
  std::int64_t const total = 100 * 400;
  State here(total), there(total);
  auto const gradient = encode(numbers(total + 8, 4, 3.0f), gradient_dtype);
  std::size_t const weight_bytes = size_of(weights_dtype);
  std::vector<std::byte> out_here((total + 8) * weight_bytes, std::byte{0x5A}),
      out_there = out_here;
  AdamWStep step = step_number(5);
  step.control = &control;
  step.gradient_dtype = gradient_dtype;
  step.weights_dtype = weights_dtype;
  auto const run = [&](Queue& q, State& s, std::vector<std::byte>& out) {
    step.segments.clear();
    std::int64_t at = 0;
    for (std::int64_t k = 0; k < 100; ++k) {
      std::int64_t const n = lengths[k % 9],
                         elsewhere = k % 7 == 3 ? k % 4 : 0;  // arrays that do not share borders
      void const* const g =
          gradient.data() + static_cast<std::size_t>(at + elsewhere) * size_of(gradient_dtype);
      void* const w =
          k % 5 == 4
              ? nullptr
              : out.data() + static_cast<std::size_t>(at + (k % 7 == 5 ? 1 : 0)) * weight_bytes;
      step.segments.push_back(
          segment_of(s, g, w, 1e-2, k % 2 ? 0.1 * static_cast<double>(k) : 0.0, at, n));
      at += n + gaps[k % 6] + (k % 7 == 5 ? 1 : 0);
    }
    ASSERT_LE(at, total);
    adamw(q, step);
    q.record().wait("the step", std::chrono::seconds(60));
  };
  run(*q, here, out_here);
  run(*stream, there, out_there);
  EXPECT_EQ(there.p, here.p);
  EXPECT_EQ(there.m, here.m);
  EXPECT_EQ(there.v, here.v);
  EXPECT_EQ(out_there, out_here);
}

/// A control that work before the step writes gives the bits of one that is constant; with skip set
/// nothing changes.
TEST(AdamW, ReadsItsControlWhenItRuns) {
  tessera::test::FakeDevice device;
  std::unique_ptr<Queue> const queues[] = {memory::make_inline_queue("compute"),
                                           memory::make_worker_queue("lane"),
                                           memory::make_stream_queue("compute")};
  std::int64_t const n = 9001;
  Floats const g = numbers(n, 4, 100.0f);
  for (auto const& q : queues)
    for (double factor : {1.0, 0.1, 1.0 / 3.0, 1e-30}) {
      State said(n), read(n), skipped(n);
      std::vector<bfloat16> out_said(static_cast<std::size_t>(n)), out_read(out_said),
          out_skipped(out_said);
      GradientControl const constant{factor, 0};
      GradientControl control{0.0, 1};
      auto const run = [&](State& s, std::vector<bfloat16>& out, GradientControl const* from) {
        AdamWStep step = step_number(2);
        step.weights_dtype = Dtype::bf16;
        step.control = from;
        step.segments = {segment_of(s, g.data(), out.data(), 1e-2, 0.1, 0, 5000),
                         segment_of(s, g.data() + 5000, nullptr, 1e-2, 0.0, 5000, n - 5000)};
        adamw(*q, step);
      };
      run(said, out_said, &constant);
      run(skipped, out_skipped, &control);
      q->submit([&] { control = {factor, 0}; });
      run(read, out_read, &control);
      q->record().wait("the steps", std::chrono::seconds(60));
      EXPECT_EQ(read.p, said.p);
      EXPECT_EQ(read.m, said.m);
      EXPECT_EQ(read.v, said.v);
      EXPECT_EQ(std::memcmp(out_read.data(), out_said.data(), out_said.size() * 2), 0);
      State const start(n);
      EXPECT_EQ(skipped.p, start.p);
      EXPECT_EQ(skipped.m, start.m);
      EXPECT_EQ(skipped.v, start.v);
      EXPECT_EQ(out_skipped[0].bits, 0);
      EXPECT_NE(out_said[0].bits, 0);
    }
}

TEST(AdamW, RefusesSegmentsWithoutMemoryAndStepZero) {
  auto q = memory::make_inline_queue("compute");
  State s(4);
  AdamWStep step = step_number(1);
  step.segments = {segment_of(s, nullptr, nullptr, 1e-3, 0.0)};
  EXPECT_THROW(adamw(*q, step), InternalError);
  Floats const g(4);
  step = step_number(0);
  step.segments = {segment_of(s, g.data(), nullptr, 1e-3, 0.0)};
  EXPECT_THROW(adamw(*q, step), InternalError);
}

}  // namespace
}  // namespace tessera::optim::test
