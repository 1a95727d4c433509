#pragma once
/// The parts of a layer of one's own. Each declares its parameters when it is built; calling it
/// computes and records an operation. Names, shapes and initial values are those of PyTorch's
/// modules in Hugging Face's models: "<name>.weight" [out, in], "<name>.bias" [out].

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/kernels/elementwise/activation.hpp"
#include "tessera/memory/param_provider.hpp"
#include "tessera/model/layers/layer_pass.hpp"

namespace tessera::model {

/// The kinds of normalization.
enum class NormKind {
  layer,  ///< layer normalization with gamma and beta
  rms     ///< root mean square normalization with gamma only
};

namespace detail {
struct LayerPlan;
}

/// Where a layer declares its parameters while it is built.
class Parameters {
 public:
  explicit Parameters(detail::LayerPlan& plan) : plan_(plan) {}
  /// Adds a parameter "<layer>.<name>" for operations of one's own. Weight decay applies to it if
  /// it has two dimensions or more.
  /// @return its number, for LayerPass::weight() and Backward::weight_gradient()
  std::size_t add(std::string const& name, std::vector<std::int64_t> shape,
                  memory::Initializer init);

  detail::LayerPlan& plan() const { return plan_; }  ///< for the library's parts

 private:
  detail::LayerPlan& plan_;
};

/// Rows in, rows out.
class Part {
 public:
  Value operator()(LayerPass& pass, Value const& in) const { return apply_(pass, in); }

 protected:
  using Apply = std::function<Value(LayerPass& pass, Value const& in)>;
  explicit Part(Apply apply) : apply_(std::move(apply)) {}

 private:
  Apply apply_;
};

/// out = in W^T + b.
struct Linear : Part {
  /// Sizes and initial values.
  struct Options {
    std::int64_t in = 0, out = 0;
    bool bias = true;
    double stddev = 0.02;  ///< initial weights
  };
  Linear(Parameters& parameters, std::string const& name, Options const& options);
};

/// Normalization of each row.
struct Norm : Part {
  /// Width and kind.
  struct Options {
    std::int64_t width = 0;
    NormKind kind = NormKind::rms;
    double epsilon = 1e-5;
  };
  Norm(Parameters& parameters, std::string const& name, Options const& options);
};

/// Causal self-attention: q_proj, k_proj, v_proj, heads (rotated if the model has rotary
/// positions), o_proj.
struct Attention : Part {
  /// Width, heads and what a token attends to.
  struct Options {
    std::int64_t width = 0;
    int heads = 1;
    int kv_heads = 0;         ///< fewer than heads: grouped queries; 0: as many as heads
    int head_dim = 0;         ///< 0: width / heads
    std::int64_t window = 0;  ///< a token sees that many tokens, itself included; 0: all before it
    double dropout = 0.0;     ///< dropout of the attention weights
    bool bias = false;
    double stddev = 0.02;  ///< initial weights
  };
  Attention(Parameters& parameters, std::string const& name, Options const& options);
};

/// down_proj(f(gate_proj(in)) * up_proj(in)), or down_proj(f(up_proj(in))).
struct Mlp : Part {
  /// Widths and activation function.
  struct Options {
    std::int64_t width = 0, inner = 0;
    bool gated = true;
    kernels::Activation activation = kernels::Activation::silu;
    bool bias = false;
    double stddev = 0.02;  ///< initial weights
  };
  Mlp(Parameters& parameters, std::string const& name, Options const& options);
};

/// a + b, as at the end of a residual branch.
Value add(LayerPass& pass, Value const& a, Value const& b);
/// f(in), element by element.
Value activate(LayerPass& pass, kernels::Activation f, Value const& in);
/// f(gate) * up, element by element.
Value gated_activate(LayerPass& pass, kernels::Activation f, Value const& gate, Value const& up);
/// In training each element is zero with probability @p p, the others are scaled by 1 / (1 - p).
/// At most eleven per layer.
Value dropout(LayerPass& pass, Value const& in, double p);

}  // namespace tessera::model
