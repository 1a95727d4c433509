/// The fused optimizer steps against memory in the same process; one JSON line a metric.
///
///   OMP_NUM_THREADS=2 build/host/bin/bench.optimizer [elements = 100000000] [rounds = 7]
///
/// value = (bytes the step must move / its time) / the rate of the best plain loop over the same
/// arrays, with normal stores and with stores past the caches, with and without prefetching;
/// over_best: the same over the best of triad, copy and read-modify-write. Seconds are medians of
/// interleaved rounds.
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stream.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/kernels/elementwise/gradient_statistics.hpp"
#include "tessera/kernels/optimizer/quantized_values.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/optim/summing_optimizer.hpp"

namespace {

using namespace tessera;
using memory::Buffer;
using memory::Purpose;

using bench::Metric;
using bench::over_tiles;
using bench::Streams;
using bench::Sweep;
using bench::sweep_of;
using bench::tile;

/// First touch by the thread that will use the tile, with values no optimizer minds.
struct Fill {
  float *p, *m, *v, *g;
  bfloat16 *g16, *w16, *codes;  ///< codes: two of 8 bits
  float* absmax;
  void operator()(std::int64_t index) const {
    for (std::int64_t i = index * tile; i < (index + 1) * tile; ++i) {
      float const x = static_cast<float>(i % 1009) * 1e-3f - 0.5f;
      p[i] = g[i] = x;
      m[i] = 0.1f * x;
      v[i] = x * x;
      g16[i] = bfloat16(x);
      w16[i] = bfloat16(0.0f);
      codes[i].bits = 0x8080;
    }
  }
};

struct Arrays {
  std::int64_t n;
  std::vector<Buffer> owned;
  Fill all{};

  explicit Arrays(std::int64_t numel) : n(numel) {
    for (float** field : {&all.p, &all.m, &all.v, &all.g}) *field = static_cast<float*>(make(4));
    all.g16 = static_cast<bfloat16*>(make(2));
    all.w16 = static_cast<bfloat16*>(make(2));
    all.codes = static_cast<bfloat16*>(make(2));
    all.absmax = static_cast<float*>(make(1));
    over_tiles(n, all);
  }
  void* make(std::size_t size) {
    owned.emplace_back("benchmark array", Purpose::workspace, static_cast<std::size_t>(n) * size);
    return owned.back().data();
  }
  /// All elements. Roots are taken of a state that comes first; it is positive.
  optim::Segments segments(std::vector<void*> states, Dtype dtype = Dtype::fp32) const {
    bool const narrow = dtype == Dtype::bf16;
    void const* const gradient = narrow ? static_cast<void const*>(all.g16) : all.g;
    return {{{all.p, std::move(states), gradient, narrow ? all.w16 : nullptr, n}}, dtype, dtype};
  }
  /// States in codes, in the memory of other arrays.
  optim::Segments quantized(std::size_t states) const {
    auto* const codes = reinterpret_cast<std::uint8_t*>(all.codes);
    auto out = segments({codes, codes + n});
    auto& s = out.list[0];
    s.states.resize(2 * states);
    s.parameters = {{{n}, n, 0, 0, n}};
    s.parameter_states = {std::vector<void*>(2 * states)};
    for (std::size_t k = 0; k < states; ++k)
      s.parameter_states[0][states + k] =
          all.absmax + static_cast<std::int64_t>(k) * n / kernels::quantization_chunk;
    return out;
  }
};

/// A function that updates @p segments by one step with gradients halved.
std::function<void()> step_of(memory::Queue& q, char const* algorithm, optim::Segments segments,
                              std::vector<optim::Hyperparameter> values = {}) {
  values.push_back({"weight_decay", 0.1});
  return [&q, segments = std::move(segments),
          optimizer = std::shared_ptr<optim::Optimizer>(
              optim::make_optimizer(optim::make_spec(algorithm, values, optim::one_group())))] {
    static kernels::GradientControl const control{0.5, 0};
    optimizer->update(q, segments, {1, 1e-6, &control});
  };
}

/// The arrays of an update that reads a gradient and updates weights and states.
template <int updated>
Sweep update_of() {
  return sweep_of<Streams{.updated4 = updated, .read4 = 1}>();
}

/// One update of each optimizer with fp32 gradients. LAMB reads its operands twice. Codes of 8 bits
/// count as halves of arrays of 16 bits: those of AdamW as one that is updated, that of Lion as one
/// that is read.
std::vector<Metric> updates(Arrays& x, memory::Queue& q) {
  auto segments = x.segments({x.all.m, x.all.v});
  segments.list[0].parameters = {{{x.n}, x.n, 0, 0, x.n}};
  auto const lamb = [&q, segments, sums = std::make_shared<std::array<double, 2>>(),
                     optimizer = std::shared_ptr<optim::Optimizer>(optim::make_optimizer(
                         optim::make_spec("Lamb", {{"weight_decay", 0.1}}, optim::one_group())))] {
    static kernels::GradientControl const control{0.5, 0};
    auto const& summing = dynamic_cast<optim::SummingOptimizer const&>(*optimizer);
    optim::StepControl const step{1, 1e-6, &control};
    summing.sum(q, 0, segments, step, {{{{sums->data()}}}});
    summing.update_with(q, segments, step, {{{{sums->data()}}}});
  };
  auto* const m = x.all.m;
  auto* const v = x.all.v;
  return {{"sgd_fp32", {update_of<1>()}, step_of(q, "SGD", x.segments({}))},
          {"sgd_nesterov_fp32",
           {update_of<2>()},
           step_of(q, "SGD", x.segments({m}), {{"momentum", 0.9}, {"nesterov", 1.0}})},
          {"lion_fp32", {update_of<2>()}, step_of(q, "Lion", x.segments({m}))},
          {"adagrad_fp32", {update_of<2>()}, step_of(q, "Adagrad", x.segments({v}))},
          {"rmsprop_fp32", {update_of<2>()}, step_of(q, "RMSprop", x.segments({v}))},
          {"rmsprop_momentum_fp32",
           {update_of<3>()},
           step_of(q, "RMSprop", x.segments({v, m}), {{"momentum", 0.9}})},
          {"adamax_fp32", {update_of<3>()}, step_of(q, "Adamax", x.segments({m, v}))},
          {"nadam_fp32", {update_of<3>()}, step_of(q, "NAdam", x.segments({m, v}))},
          {"lamb_fp32", {sweep_of<Streams{.read4 = 4}>(), update_of<3>()}, lamb},
          {"adamw_8bit_fp32",
           {sweep_of<Streams{.updated4 = 1, .read4 = 1, .updated2 = 1}>()},
           step_of(q, "AdamW8bit", x.quantized(2))},
          {"lion_8bit_fp32",
           {sweep_of<Streams{.updated4 = 1, .read4 = 1, .read2 = 1}>()},
           step_of(q, "Lion8bit", x.quantized(1))}};
}

/// Adafactor's update of one matrix without momentum, with its sums: three sweeps.
Metric adafactor_of(Arrays& x, memory::Queue& q) {
  std::int64_t const columns = 1024, rows = x.n / columns;
  auto const sums =
      std::make_shared<std::vector<double>>(static_cast<std::size_t>(2 + rows + columns) + 1);
  auto const means =
      std::make_shared<std::vector<float>>(static_cast<std::size_t>(rows + columns), 0.01f);
  double* const squares = sums->data() + sums->size() - 1;
  auto segments = x.segments({nullptr, nullptr});
  segments.list[0].parameters = {{{rows, columns}, x.n, 0, 0, x.n}};
  segments.list[0].parameter_states = {{means->data(), means->data() + rows}};
  optim::ParameterSums const places{{{{sums->data()}}, {{squares}}}};
  return {"adafactor_fp32",
          {sweep_of<Streams{.read4 = 2}>(), sweep_of<Streams{.read4 = 1}>(), update_of<1>()},
          [&q, segments, places, sums, means, squares,
           optimizer = std::shared_ptr<optim::Optimizer>(
               optim::make_optimizer(optim::make_spec("Adafactor", {}, optim::one_group())))] {
            static kernels::GradientControl const control{0.5, 0};
            auto const& adafactor = dynamic_cast<optim::SummingOptimizer const&>(*optimizer);
            optim::StepControl const step{2, 1e-6, &control};
            adafactor.sum(q, 0, segments, step, places);
            adafactor.update_states(q, 0,
                                    {{segments.list[0].parameters[0].shape,
                                      segments.list[0].parameter_states[0],
                                      {sums->data(), squares}}},
                                    step);
            adafactor.sum(q, 1, segments, step, places);
            adafactor.update_with(q, segments, step, places);
          }};
}

/// The update of a spread of elements equals the formula in double: a step that skips work must not
/// score.
bool is_correct(Arrays& x, memory::Queue& q) {
  std::vector<double> expected;
  for (std::int64_t i = 0; i < x.n; i += 99991) {
    double const g = 0.5 * x.all.g[i], m = 0.9 * x.all.m[i] + 0.1 * g,
                 v = 0.999 * x.all.v[i] + 0.001 * g * g, p = x.all.p[i];
    expected.push_back(p - 1e-6 * 0.1 * p - 1e-6 * (m / 0.1) / (std::sqrt(v / 0.001) + 1e-8));
  }
  step_of(q, "AdamW", x.segments({x.all.m, x.all.v}))();
  for (std::size_t k = 0; k < expected.size(); ++k)
    if (std::abs(x.all.p[k * 99991] - expected[k]) > 1e-6) return false;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::int64_t const n =
      (argc > 1 ? static_cast<std::int64_t>(std::atof(argv[1])) : 100'000'000) / tile * tile;
  int const rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  memory::Runtime const runtime{{}};
  auto const q = memory::make_inline_queue("compute");
  Arrays x(n);
  double sums[2];
  auto const adamw = [&](Dtype dtype) {
    return step_of(*q, "AdamW", x.segments({x.all.m, x.all.v}, dtype));
  };
  auto const measure_gradient = [&](Dtype dtype) {
    void const* g = dtype == Dtype::bf16 ? static_cast<void const*>(x.all.g16) : x.all.g;
    kernels::gradient_statistics(*q, sums, {{g, n}}, dtype);
  };
  Sweep const reads = sweep_of<Streams{.read4 = 1}>(), bf16_reads = sweep_of<Streams{.read2 = 1}>(),
              bf16_update = sweep_of<Streams{.updated4 = 3, .read2 = 1, .written2 = 1}>();
  std::vector<Metric> metrics{
      {"adamw_fp32", {update_of<3>()}, adamw(Dtype::fp32)},
      {"adamw_bf16_in_out", {bf16_update}, adamw(Dtype::bf16)},
      {"gradient_statistics_fp32", {reads}, [&] { measure_gradient(Dtype::fp32); }},
      {"gradient_statistics_bf16", {bf16_reads}, [&] { measure_gradient(Dtype::bf16); }},
      {"optimizer_step_fp32",
       {reads, update_of<3>()},
       [&, update = adamw(Dtype::fp32)] { measure_gradient(Dtype::fp32), update(); }},
      {"optimizer_step_bf16",
       {bf16_reads, bf16_update},
       [&, update = adamw(Dtype::bf16)] { measure_gradient(Dtype::bf16), update(); }},
  };
  for (auto const& update : updates(x, *q)) metrics.push_back(update);
  metrics.push_back(adafactor_of(x, *q));
  bench::report(n, metrics, rounds, {{"elements", n}});
  if (is_correct(x, *q)) return 0;
  std::fprintf(stderr, "the measured step gives wrong weights\n");
  return 1;
}
