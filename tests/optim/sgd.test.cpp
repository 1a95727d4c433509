/// The SGD update against a double-precision reference and torch.optim.SGD.
#include "optimizers/table.hpp"

#include <cmath>

#include "trajectory.hpp"
#include "update_by.hpp"

namespace tessera::optim::test {
namespace {

using kernels::GradientControl;
using kernels::test::UpdateSegment;
using memory::Queue;

Floats numbers(std::int64_t n, std::uint64_t stream, float scale = 1.0f) {
  Philox const random{11, stream};
  Floats out;
  for (std::int64_t i = 0; i < n; ++i)
    out.push_back(scale * (2.0f * random.uniform(static_cast<std::uint64_t>(i)) - 1.0f));
  return out;
}

struct Form {
  char const* name;
  double momentum, dampening, nesterov;
};
void PrintTo(Form const& f, std::ostream* out) { *out << f.name; }

struct SgdStep : kernels::test::ElementwiseUpdate {
  OptimizerSpec spec;
  std::int64_t t;
};

SgdStep step_of(Form const& form, int t) {
  return {{},
          make_spec("SGD", {{"momentum", form.momentum},
                            {"dampening", form.dampening},
                            {"nesterov", form.nesterov}}),
          t};
}

void sgd(Queue& q, SgdStep const& step) { update_by(step.spec, step.t, q, step); }

UpdateSegment segment_of(Floats& p, Floats& b, void const* g, void* out, double lr, double decay) {
  UpdateSegment s;
  s.master = p.data();
  s.states[0] = b.empty() ? nullptr : b.data();
  s.gradient = g;
  s.weights_out = out;
  s.numel = static_cast<std::int64_t>(p.size());
  s.learning_rate = lr;
  s.weight_decay = decay;
  return s;
}

class Sgd : public ::testing::TestWithParam<Form> {};

/// The formulas of torch.optim.SGD's documentation, element by element in double.
TEST_P(Sgd, EqualsTheDoubleReference) {
  auto const& form = GetParam();
  auto const q = memory::make_inline_queue("compute");
  std::int64_t const n = 4099;
  Floats p = numbers(n, 1), b(form.momentum == 0.0 ? 0 : n, 0.0f);
  std::vector<double> want_p(p.begin(), p.end()), want_b(static_cast<std::size_t>(n), 0.0);
  std::vector<bfloat16> rounded(static_cast<std::size_t>(n));
  GradientControl const control{0.25, 0};
  for (int t = 1; t <= 4; ++t) {
    Floats const g = numbers(n, static_cast<std::uint64_t>(10 + t), 3.0f);
    auto step = step_of(form, t);
    step.control = &control;
    step.weights_dtype = Dtype::bf16;
    step.segments = {segment_of(p, b, g.data(), rounded.data(), 0.05, 0.1)};
    sgd(*q, step);
    for (std::size_t i = 0; i < p.size(); ++i) {
      double d = 0.25 * g[i] + 0.1 * want_p[i];
      if (form.momentum != 0.0) {
        want_b[i] = t == 1 ? d : form.momentum * want_b[i] + (1 - form.dampening) * d;
        d = form.nesterov != 0.0 ? d + form.momentum * want_b[i] : want_b[i];
      }
      want_p[i] -= 0.05 * d;
      ASSERT_NEAR(p[i], want_p[i], 1e-6) << "element " << i << ", step " << t;
      if (!b.empty()) {
        ASSERT_NEAR(b[i], want_b[i], 2e-6) << "element " << i << ", step " << t;
      }
      ASSERT_EQ(static_cast<float>(rounded[i]), static_cast<float>(bfloat16(p[i])));
    }
  }
}

/// A stream takes the device's traversal: packs where all arrays share borders, else elements. Both
/// traversals give the same bits, and a skipped step changes nothing.
TEST_P(Sgd, BothTraversalsGiveTheSameBits) {
  auto const& form = GetParam();
  tessera::test::FakeDevice device;
  auto const host = memory::make_inline_queue("compute");
  auto const stream = memory::make_stream_queue("compute");
  for (std::int64_t const n : {1, 3, 256, 257, 1025})
    for (std::size_t const shift : {0u, 1u}) {
      Floats const g = numbers(n + 1, 3);
      auto const run = [&](memory::Queue& q, GradientControl const& control) {
        Floats p = numbers(n, 1), b = form.momentum == 0.0 ? Floats() : numbers(n, 2);
        auto step = step_of(form, 2);
        step.control = &control;
        step.segments = {segment_of(p, b, g.data() + shift, nullptr, 0.1, 0.01)};
        sgd(q, step);
        q.record().wait("the step", std::chrono::seconds(60));
        p.insert(p.end(), b.begin(), b.end());
        return p;
      };
      GradientControl const apply{0.5, 0}, skip{0.5, 1};
      EXPECT_EQ(run(*stream, apply), run(*host, apply)) << n << " elements, shift " << shift;
      EXPECT_EQ(run(*stream, skip), run(*host, skip));
      EXPECT_NE(run(*host, apply), run(*host, skip));
    }
}

INSTANTIATE_TEST_SUITE_P(Forms, Sgd,
                         ::testing::Values(Form{"none", 0.0, 0.0, 0.0},
                                           Form{"classical", 0.9, 0.0, 0.0},
                                           Form{"dampened", 0.8, 0.3, 0.0},
                                           Form{"nesterov", 0.9, 0.0, 1.0}),
                         [](auto const& info) { return std::string(info.param.name); });

/// Stored by tests/oracles/sgd.py. Both sides compute in fp32 in the same order; they may differ by
/// single roundings.
TEST(SgdOracle, EqualsTorch) {
  auto const q = memory::make_inline_queue("compute");
  auto const oracle = ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/sgd.json");
  for (auto const& c : oracle.at("cases").as_array()) {
    double const momentum = c.at("momentum").as_double();
    Form const form{"", momentum, c.at("dampening").as_double(),
                    c.at("nesterov").as_bool() ? 1.0 : 0.0};
    Floats p = floats_of(oracle.at("start")), b(momentum == 0.0 ? 0 : p.size(), 0.0f);
    int t = 0;
    for (auto const& row : oracle.at("gradients").as_array()) {
      Floats const g = floats_of(row);
      auto step = step_of(form, ++t);
      step.segments = {segment_of(p, b, g.data(), nullptr, c.at("lr").as_double(),
                                  c.at("weight_decay").as_double())};
      sgd(*q, step);
    }
    Floats const want = floats_of(c.at("weight"));
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(p[i], want[i], 1e-6 * (1 + std::abs(want[i]))) << c.dump() << " element " << i;
    if (b.empty()) continue;
    Floats const buffer = floats_of(c.at("momentum_buffer"));
    for (std::size_t i = 0; i < buffer.size(); ++i)
      EXPECT_NEAR(b[i], buffer[i], 1e-6 * std::abs(buffer[i]) + 1e-12);
  }
}

TEST(SgdOracle, RefusesSegmentsWithoutMemory) {
  auto const q = memory::make_inline_queue("compute");
  Floats p(4), b, g(4);
  SgdStep step = step_of({"", 0.0, 0.0, 0.0}, 1);
  step.segments = {segment_of(p, b, nullptr, nullptr, 0.1, 0.0)};
  EXPECT_THROW(sgd(*q, step), InternalError);
  step = step_of({"", 0.9, 0.0, 0.0}, 1);
  step.segments = {segment_of(p, b, g.data(), nullptr, 0.1, 0.0)};
  EXPECT_THROW(sgd(*q, step), InternalError);
}

}  // namespace
}  // namespace tessera::optim::test
