#include "tessera/model/layers/layers.hpp"

#include <algorithm>
#include <cmath>

#include "layers/attention.hpp"
#include "layers/mlp.hpp"
#include "layers/norm.hpp"
#include "layers/planning.hpp"
#include "layers/tape.hpp"

namespace tessera::model {
namespace {

using detail::LayerPlan;
using detail::PassContext;
using detail::TapeBackward;
using memory::ConstTensorView;
using memory::TensorView;

/// A layer of the families as a part: it knows its parameters and the width of its input.
template <class Layer>
struct Owned {
  std::string name;
  std::int64_t width;
  detail::ParameterRange range{};
  Layer layer;

  template <class Options, class... More>
  Owned(LayerPlan& plan, std::string const& of, std::int64_t columns, Options const& options,
        More... more)
      : name(plan.below(of)),
        width(columns),
        range{plan.unit.parameters.size(), 0},
        layer(plan.unit, name, options, more...) {
    range.end = plan.unit.parameters.size();
  }

  void check(Value const& in) const {
    TESSERA_VALIDATE(in.columns() == width, ConfigError, name, " takes rows of ", width,
                     " elements but gets ", in.columns(), "; check the sizes of the layer");
  }
};

void check_size(LayerPlan const& plan, std::string const& name, std::string_view what,
                std::int64_t size) {
  TESSERA_VALIDATE(size >= 1, ConfigError, plan.below(name), ": ", what, " is ", size,
                   "; it must be at least 1");
}

void check_equal(std::string_view operation, Value const& a, Value const& b) {
  TESSERA_VALIDATE(a.columns() == b.columns(), ConfigError, operation, " of rows with ",
                   a.columns(), " and ", b.columns(), " elements; they must have equally many");
}

detail::Bias bias_of(bool wanted) { return wanted ? detail::Bias::zeros : detail::Bias::none; }

TensorView allocate_like(PassContext const& pass, Value const& value) {
  return pass.arena.allocate(value.rows().dtype(), {value.rows().dim(0), value.columns()});
}

kernels::GatedShape gated_shape(Value const& value) {
  return {.dtype = value.rows().dtype(), .rows = value.rows().dim(0), .width = value.columns()};
}
kernels::GatedInput gated_input(Value const& gate, Value const& up) {
  return {{gate.rows().data(), gate.columns()}, {up.rows().data(), up.columns()}};
}

std::function<Value(LayerPass&, Value const&)> make_linear(LayerPlan& plan, std::string const& name,
                                                           Linear::Options const& o) {
  check_size(plan, name, "in", o.in);
  check_size(plan, name, "out", o.out);
  auto const part = std::make_shared<Owned<detail::Linear> const>(
      plan, name, o.in,
      detail::LinearShape{o.in, o.out, detail::WeightLayout::out_in, bias_of(o.bias)}, o.stddev);
  return [part](LayerPass& layer_pass, Value const& in) {
    part->check(in);
    auto const& frame = layer_pass.frame();
    TensorView const out = layer_pass.allocate(part->layer.shape().out);
    part->layer.forward(frame.pass, frame.weights, out, in.rows());
    return layer_pass.record(out, [part, in](Backward& backward) {
      TapeBackward& run = backward.run();
      auto const leases = run.leases(part->range);
      part->layer.backward(run.pass(), leases, run.to(in), run.gradient(), in.rows());
    });
  };
}

std::function<Value(LayerPass&, Value const&)> make_norm(LayerPlan& plan, std::string const& name,
                                                         Norm::Options const& o) {
  check_size(plan, name, "width", o.width);
  auto const part = std::make_shared<Owned<detail::Norm> const>(
      plan, name, o.width,
      detail::NormOptions{.width = o.width, .epsilon = o.epsilon, .kind = o.kind});
  return [part](LayerPass& layer_pass, Value const& in) {
    part->check(in);
    auto const& frame = layer_pass.frame();
    TensorView const out = layer_pass.allocate(part->width);
    auto const saved = part->layer.forward(frame.pass, frame.weights, out, in.rows());
    return layer_pass.record(out, [part, in, saved](Backward& backward) {
      TapeBackward& run = backward.run();
      auto const leases = run.leases(part->range);
      Dtype const stream = run.pass().stream_dtype;
      ConstTensorView const dout = run.gradient_in(stream);
      auto const to = [&](kernels::GradientTarget const& din) {
        part->layer.backward(run.pass(), leases, {din}, dout, in.rows(), saved);
      };
      if (in.rows().dtype() == stream) return to(run.to(in));
      run.write(in, stream, [&](TensorView din) { to({din}); });
    });
  };
}

/// Counts the part, for the key/value cache and its dropout masks.
detail::AttentionOptions attention_options(LayerPlan& plan, std::string const& name,
                                           Attention::Options const& o) {
  check_size(plan, name, "width", o.width);
  check_size(plan, name, "heads", o.heads);
  int const kv_heads = o.kv_heads == 0 ? o.heads : o.kv_heads,
            head_dim = o.head_dim == 0 ? static_cast<int>(o.width / o.heads) : o.head_dim;
  TESSERA_VALIDATE(kv_heads >= 1 && o.heads % kv_heads == 0 && head_dim >= 1 &&
                       (o.head_dim != 0 || o.width % o.heads == 0),
                   ConfigError, plan.below(name), ": ", o.heads, " heads, ", kv_heads,
                   " of them with keys and values, of ", head_dim, " elements, in a width of ",
                   o.width, "; heads must divide the width, and kv_heads the heads");
  detail::AttentionOptions out{.qkv = {.width = o.width,
                                       .heads = o.heads,
                                       .kv_heads = kv_heads,
                                       .head_dim = head_dim,
                                       .layout = detail::QkvLayout::separate,
                                       .weights = detail::WeightLayout::out_in,
                                       .bias = bias_of(o.bias),
                                       .stddev = o.stddev,
                                       .names = {"q_proj", "k_proj", "v_proj"}},
                               .scale = 1.0 / std::sqrt(static_cast<double>(head_dim)),
                               .mask = {.window = o.window},
                               .dropout = o.dropout,
                               .layer = plan.attention.count,
                               .rotary_dim = plan.rotary ? plan.rotary->rotary_dim : 0,
                               .output_bias = bias_of(o.bias),
                               .output_stddev = o.stddev,
                               .output_name = "o_proj"};
  TESSERA_VALIDATE(out.rotary_dim <= head_dim, ConfigError, plan.below(name), ": rotary_dim is ",
                   out.rotary_dim, ", but a head has ", head_dim, " elements");
  plan.attention.add(kv_heads, head_dim);
  return out;
}

/// A layer that ends in a projection. @param first what comes before it; returns what the
/// projection and the backward pass read
template <class Layer, class First>
std::function<Value(LayerPass&, Value const&)> layer_with_projection(
    std::shared_ptr<Owned<Layer> const> const& part, First first) {
  return [part, first](LayerPass& layer_pass, Value const& in) {
    part->check(in);
    auto const& frame = layer_pass.frame();
    TensorView const out = layer_pass.allocate(part->width);
    auto const saved = first(part->layer, frame.pass, frame.weights, in.rows());
    part->layer.project(frame.pass, frame.weights, out, saved);
    return layer_pass.record(out, [part, in, saved](Backward& backward) {
      TapeBackward& run = backward.run();
      auto const leases = run.leases(part->range);
      run.write(in, in.rows().dtype(), [&](TensorView din) {
        part->layer.backward(run.pass(), leases, din, run.gradient(), in.rows(), saved);
      });
    });
  };
}

std::function<Value(LayerPass&, Value const&)> make_attention(LayerPlan& plan,
                                                              std::string const& name,
                                                              Attention::Options const& o) {
  auto const part = std::make_shared<Owned<detail::CausalSelfAttention> const>(
      plan, name, o.width, attention_options(plan, name, o));
  return layer_with_projection(
      part, [](auto const& layer, auto const&... operands) { return layer.mix(operands...); });
}

std::function<Value(LayerPass&, Value const&)> make_mlp(LayerPlan& plan, std::string const& name,
                                                        Mlp::Options const& o) {
  check_size(plan, name, "width", o.width);
  check_size(plan, name, "inner", o.inner);
  auto const part = std::make_shared<Owned<detail::Mlp> const>(
      plan, name, o.width,
      detail::MlpOptions{.width = o.width,
                         .inner = o.inner,
                         .kind = o.gated ? detail::MlpKind::gated : detail::MlpKind::plain,
                         .activation = o.activation,
                         .layout = detail::WeightLayout::out_in,
                         .bias = bias_of(o.bias),
                         .stddev = o.stddev,
                         .projection_stddev = o.stddev,
                         .gate_name = "gate_proj",
                         .expand_name = "up_proj",
                         .project_name = "down_proj"});
  return layer_with_projection(
      part, [](auto const& layer, auto const&... operands) { return layer.expand(operands...); });
}

}  // namespace

std::size_t Parameters::add(std::string const& name, std::vector<std::int64_t> shape,
                            memory::Initializer init) {
  bool const is_empty = std::any_of(shape.begin(), shape.end(), [](auto n) { return n < 1; });
  TESSERA_VALIDATE(!name.empty() && !shape.empty() && shape.size() <= 4 && !is_empty, ConfigError,
                   "parameter '", name, "' of ", plan_.name,
                   ": it needs a name and one to four dimensions of at least 1");
  auto const add = shape.size() > 1 ? detail::add_parameter : detail::add_undecayed_parameter;
  return add(plan_.unit, plan_.below(name), std::move(shape), init);
}

Linear::Linear(Parameters& parameters, std::string const& name, Options const& options)
    : Part(make_linear(parameters.plan(), name, options)) {}
Norm::Norm(Parameters& parameters, std::string const& name, Options const& options)
    : Part(make_norm(parameters.plan(), name, options)) {}
Attention::Attention(Parameters& parameters, std::string const& name, Options const& options)
    : Part(make_attention(parameters.plan(), name, options)) {}
Mlp::Mlp(Parameters& parameters, std::string const& name, Options const& options)
    : Part(make_mlp(parameters.plan(), name, options)) {}

Value add(LayerPass& pass, Value const& a, Value const& b) {
  check_equal("a sum", a, b);
  PassContext const& context = pass.frame().pass;
  bool const in_stream =
      a.rows().dtype() == context.stream_dtype || b.rows().dtype() == context.stream_dtype;
  Dtype const dtype = in_stream ? context.stream_dtype : context.dtype;
  TensorView const out = context.arena.allocate(dtype, {a.rows().dim(0), a.columns()});
  if (a.rows().dtype() == b.rows().dtype()) {
    kernels::residual_add(context.compute, out, a.rows(), b.rows(), {});
  } else {
    kernels::cast(context.compute, out, a.rows());
    kernels::add(context.compute, out, b.rows());
  }
  return pass.record(out, [a, b](Backward& backward) {
    backward.pass_on(a);
    backward.pass_on(b);
  });
}

Value activate(LayerPass& pass, kernels::Activation f, Value const& in) {
  TensorView const out = allocate_like(pass.frame().pass, in);
  kernels::activate(pass.queue(), f, out, in.rows());
  return pass.record(out, [f, in](Backward& backward) {
    backward.write(in, [&](TensorView din) {
      kernels::activate_backward(backward.queue(), f, din, backward.gradient(), in.rows());
    });
  });
}

Value gated_activate(LayerPass& pass, kernels::Activation f, Value const& gate, Value const& up) {
  check_equal("a gate", gate, up);
  TESSERA_VALIDATE(gate.rows().dtype() == up.rows().dtype(), ConfigError, "a gate in ",
                   name_of(gate.rows().dtype()), " of rows in ", name_of(up.rows().dtype()),
                   "; give both through a layer");
  TensorView const out = allocate_like(pass.frame().pass, gate);
  kernels::gated_activate(pass.queue(), f, gated_shape(gate), {out.data(), out.dim(1)},
                          gated_input(gate, up));
  return pass.record(out, [f, gate, up](Backward& backward) {
    PassContext const& context = backward.run().pass();
    TensorView const dgate = allocate_like(context, gate), dup = allocate_like(context, up);
    ConstTensorView const dout = backward.gradient();
    kernels::gated_activate_backward(context.compute, f, gated_shape(gate),
                                     {{dgate.data(), dgate.dim(1)}, {dup.data(), dup.dim(1)}},
                                     {dout.data(), dout.dim(1)}, gated_input(gate, up));
    backward.run().give(gate, dgate);
    backward.run().give(up, dup);
  });
}

Value dropout(LayerPass& pass, Value const& in, double p) {
  TESSERA_VALIDATE(p >= 0.0 && p < 1.0, ConfigError, "a dropout of ", p, " in ", pass.frame().name,
                   "; it must be at least 0 and less than 1");
  auto& frame = pass.frame();
  constexpr int first = static_cast<int>(detail::DropoutSite::first_adapter), sites = 16;
  int const site = first + frame.dropouts++;
  TESSERA_VALIDATE(site < sites, ConfigError, frame.name, " has more than ", sites - first,
                   " dropouts; split the layer");
  auto const drop = frame.pass.dropout(p, frame.layer, static_cast<detail::DropoutSite>(site),
                                       frame.pass.sequence * in.columns());
  if (drop.p == 0.0f) return in;
  TensorView const out = allocate_like(frame.pass, in);
  kernels::dropout(pass.queue(), out, in.rows(), drop);
  return pass.record(out, [in, drop](Backward& backward) {
    backward.write(in, [&](TensorView din) {
      kernels::dropout(backward.queue(), din, backward.gradient(), drop);
    });
  });
}

}  // namespace tessera::model
