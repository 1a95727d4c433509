#include "optimizers/table.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "optimizers/elementwise.hpp"
#include "tessera/core/text.hpp"
#include "tessera/kernels/elementwise/gradient_statistics.hpp"
#include "tessera/kernels/gemm/gemm.hpp"
#include "tessera/optim/matrix_optimizer.hpp"

namespace tessera::optim::detail {
namespace {

using namespace kernels;
using namespace kernels::detail;
using Range = HyperparameterRule::Range;

/// m <- m + (1-momentum) (g - m);  u <- g + momentum (m - g)
/// in fp32; weights do not change. Source: Jordan et al., "Muon: An optimizer for hidden layers in
/// neural networks", 2024, with Nesterov's form, as DeepSpeed has it. Traffic 12 B read + 8 B
/// written.
struct MuonDirectionRule {
  struct Coefficients {
    float gradient_factor;
    float momentum, one_minus_momentum;
  };
  struct Rates {};
  static constexpr int states = 2;  ///< momentum_buffer, direction
  static constexpr char const* name = "tessera::kernels::muon_directions";

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const& c, Rates const&, float g, float&,
                                             float& m, float& u) {
    // rounded here in every loop: a bare product could be contracted into g - m and m - g
    g = multiply_add(g, c.gradient_factor, 0.0f);
    m = multiply_add(c.one_minus_momentum, g - m, m);
    u = multiply_add(c.momentum, m - g, g);
  }
  static Coefficients coefficients(RuleStep const& step) {
    return {1.0f, fp32(step["momentum"]), fp32(1.0 - step["momentum"])};
  }
  static Rates rates(RuleStep const&, double) { return {}; }
};

/// p <- p - lr * weight_decay * p - lr * u
struct MuonRule {
  struct Coefficients {
    float gradient_factor;
  };
  struct Rates {
    float keep;  ///< 1 - lr * weight_decay
    float learning_rate;
  };
  static constexpr int states = 1;  ///< direction, only read
  static constexpr char const* name = "tessera::kernels::muon_update";

  static KOKKOS_INLINE_FUNCTION void element(Coefficients const&, Rates const& r, float, float& p,
                                             float& u) {
    p = multiply_add(-r.learning_rate, u, p * r.keep);
  }
  static Coefficients coefficients(RuleStep const&) { return {1.0f}; }
  static Rates rates(RuleStep const& step, double weight_decay) {
    return {fp32(1.0 - step.learning_rate * weight_decay), fp32(step.learning_rate)};
  }
};

constexpr std::int64_t copied_tile = 4096;
constexpr std::int64_t sums_numel = 4;  ///< floats that hold two doubles

/// out = factor * in, or with `norm`: in / (sqrt(*norm) + 1e-7).
struct ScaledCopy {
  float* out;
  float const* in;
  double factor;
  double const* norm;
  std::int64_t numel;

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team, std::int64_t row) const {
    std::int64_t const begin = row * copied_tile;
    float const f = static_cast<float>(norm ? factor / (std::sqrt(*norm) + 1e-7) : factor);
    for_chunks(team, numel - begin < copied_tile ? numel - begin : copied_tile,
               [&](std::int64_t first, int n) {
                 for (std::int64_t i = begin + first; i < begin + first + n; ++i)
                   out[i] = f * in[i];
               });
  }
};

void scaled_copy(memory::Queue& q, float* out, float const* in, double factor, std::int64_t numel,
                 double const* norm = nullptr) {
  parallel_rows(q, "tessera::kernels::scaled_copy", ceil_divide(numel, copied_tile),
                ScaledCopy{out, in, factor, norm, numel});
}

/// matrix [rows, columns] fp32 <- sqrt(max(1, rows / columns)) times its nearest orthogonal matrix,
/// approximately: X = matrix / (|matrix| + 1e-7), then 5 times
///   A = X X^T;  X <- 3.4445 X + (-4.7750 A + 2.0315 A A) X
/// or, with more rows than columns, A = X^T X and products from the right. In fp32.
void orthogonalize(memory::Queue& q, float* matrix, std::int64_t rows, std::int64_t columns,
                   float* workspace) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  constexpr int iterations = 5;
  std::int64_t const n = std::min(rows, columns), numel = rows * columns;
  auto* const sums = reinterpret_cast<double*>(workspace);
  float* const gram = workspace + sums_numel;
  float* const square = gram + n * n;
  float *x = matrix, *other = square + n * n;
  gradient_statistics(q, sums, {{matrix, numel}}, Dtype::fp32);
  scaled_copy(q, x, x, 1.0, numel, sums);
  TensorView const gram_view(gram, Dtype::fp32, {n, n}), square_view(square, Dtype::fp32, {n, n});
  bool const is_tall = rows > columns;
  for (int k = 0; k < iterations; ++k) {
    TensorView const from(x, Dtype::fp32, {rows, columns}), to(other, Dtype::fp32, {rows, columns});
    gemm(q, {.transpose_a = is_tall, .transpose_b = !is_tall}, gram_view, from, from);
    scaled_copy(q, square, gram, b, n * n);
    gemm(q, {.accumulate = true, .alpha = static_cast<float>(c)}, square_view, gram_view,
         gram_view);
    scaled_copy(q, other, x, a, numel);
    is_tall ? gemm(q, {.accumulate = true}, to, from, square_view)
            : gemm(q, {.accumulate = true}, to, square_view, from);
    std::swap(x, other);
  }
  double const aspect = static_cast<double>(rows) / static_cast<double>(columns);
  scaled_copy(q, matrix, x, std::sqrt(std::max(1.0, aspect)), numel);
}

std::vector<HyperparameterRule> muon_hyperparameters() {
  return {{"momentum", 0.95, Range::unit, "decay of the momentum of matrices"},
          {"beta1", 0.9, Range::unit, "decay of the mean of the gradients of other parameters"},
          {"beta2", 0.95, Range::unit, "decay of the mean of their squares"},
          {"eps", 1e-10, Range::positive, "added to the root of the mean square"},
          {"weight_decay", 0.0, Range::not_negative, "weight decay"},
          {"muon_rate", 1.0, Range::not_negative, "rate of matrices as a multiple of lr", true},
          {"adam_rate", 1.0, Range::not_negative, "rate of the others as a multiple of lr", true}};
}

/// exp_avg is the momentum of a matrix, which has no exp_avg_sq.
std::vector<StateSpec> muon_states(OptimizerSpec const&) { return {{"exp_avg"}, {"exp_avg_sq"}}; }

std::int64_t columns_of_matrix(std::vector<std::int64_t> const& shape) {
  std::int64_t count = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) count *= shape[i];
  return count;
}

class Muon final : public MatrixOptimizer {
 public:
  explicit Muon(OptimizerSpec const& spec) : spec_(spec) {}

  OptimizerSpec const& spec() const override { return spec_; }

  /// DeepSpeed's rule: two dimensions or more, and no embedding or head by name.
  bool takes_matrix(ParameterRun const& run) const override {
    std::string const name = lower_case(run.name);
    return run.shape.size() >= 2 && name.find("embed") == std::string::npos &&
           name.find("lm_head") == std::string::npos;
  }

  std::int64_t workspace(std::vector<std::int64_t> const& shape) const override {
    std::int64_t const rows = shape[0], columns = columns_of_matrix(shape),
                       n = std::min(rows, columns);
    return sums_numel + rows * columns + 2 * n * n;
  }

  void advance(memory::Queue& queue, Segments const& segments, StepControl const& control,
               Directions const& directions) const override {
    auto parts = parts_of(segments, directions);
    for (auto& s : parts.matrices.list) {
      s.states[1] = s.states[2];  // momentum, direction
      s.weights_out = nullptr;
    }
    update_elements<MuonDirectionRule>(queue, spec_, parts.matrices, control);
  }

  void complete(memory::Queue& queue, float* matrix, std::vector<std::int64_t> const& shape,
                float* workspace) const override {
    orthogonalize(queue, matrix, shape[0], columns_of_matrix(shape), workspace);
  }

  void update_with(memory::Queue& queue, Segments const& segments, StepControl const& control,
                   Directions const& directions) const override {
    auto parts = parts_of(segments, directions);
    for (auto& s : parts.matrices.list) s.states = {s.states[2]};
    for (auto& s : parts.others.list) s.states.resize(2);
    update_elements<MuonRule>(queue, spec_, parts.matrices, scaled(control, "muon_rate"));
    update_as_adamw(queue, spec_, parts.others, scaled(control, "adam_rate"));
  }

 private:
  /// Segments of one parameter; states[2] is the direction.
  struct Parts {
    Segments matrices, others;
  };
  Parts parts_of(Segments const& segments, Directions const& directions) const {
    Parts parts{{{}, segments.gradient_dtype, segments.weights_dtype},
                {{}, segments.gradient_dtype, segments.weights_dtype}};
    Segments given = segments;
    for (std::size_t i = 0; i < given.list.size(); ++i)
      given.list[i].states.push_back(directions[i]);
    for (auto& s : parameter_segments(given).list)
      (takes_matrix(s.parameters[0]) ? parts.matrices : parts.others).list.push_back(std::move(s));
    return parts;
  }
  StepControl scaled(StepControl control, char const* factor) const {
    control.learning_rate *= spec_.value(factor);
    return control;
  }

  OptimizerSpec spec_;
};

}  // namespace

OptimizerEntry muon_entry() {
  return {{"Muon", {}, muon_hyperparameters(), {"exp_avg", "exp_avg_sq"}, 2e-2},
          muon_states,
          make_as<Muon>};
}

}  // namespace tessera::optim::detail
