#pragma once
/// Layers of one's own, for the tests of models that are composed of them.

#include "family_suite.hpp"
#include "tessera/model/families/composed_lm.hpp"

namespace tessera::model::test_layers {

constexpr std::int64_t width = 6, vocabulary = 11, positions = 5;

/// out = in * gain, element by element: an operation of one's own, on the host in fp32.
inline Value multiply(LayerPass& pass, Value const& in, std::size_t gain) {
  auto const columns = in.columns(), n = in.rows().numel();
  memory::TensorView const out = pass.allocate(columns);
  memory::ConstTensorView const rows = in.rows(), gains = pass.weight(gain);
  pass.queue().submit([=] {
    for (std::int64_t i = 0; i < n; ++i)
      out.as<float>()[i] = rows.as<float>()[i] * gains.as<float>()[i % columns];
  });
  return pass.record(out, [=](Backward& backward) {
    auto const dout = backward.gradient();
    auto const dgain = backward.weight_gradient(gain);
    backward.write(in, [&](memory::TensorView din) {
      backward.queue().submit([=] {
        for (std::int64_t i = 0; i < n; ++i)
          din.as<float>()[i] = dout.as<float>()[i] * gains.as<float>()[i % columns];
      });
    });
    if (!dgain.view.empty())
      backward.queue().submit([=] {
        for (std::int64_t c = 0; c < columns; ++c) {
          double sum = dgain.mode == kernels::WriteMode::add ? dgain.view.as<float>()[c] : 0.0;
          for (std::int64_t i = c; i < n; i += columns)
            sum += static_cast<double>(dout.as<float>()[i]) * rows.as<float>()[i];
          dgain.view.as<float>()[c] = static_cast<float>(sum);
        }
      });
  });
}

/// Every operation; values used several times and not at all; a linear layer and a parameter used
/// twice.
struct EveryOperation final : Layer {
  explicit EveryOperation(Parameters& p)
      : norm(p, "norm", {.width = width, .kind = NormKind::layer}),
        attention(p, "attention", {.width = width, .heads = 2, .window = 3, .bias = true}),
        mlp(p, "mlp",
            {.width = width,
             .inner = 5,
             .gated = false,
             .activation = kernels::Activation::gelu_new,
             .bias = true}),
        twice(p, "twice", {.in = width, .out = width, .stddev = 0.3}),
        wide(p, "wide", {.in = width, .out = 2 * width, .bias = false}),
        narrow(p, "narrow", {.in = 2 * width, .out = width}),
        gain(p.add("gain", {width}, {memory::Initializer::Kind::ones})) {}

  Value forward(LayerPass& pass, Value const& in) const override {
    using enum kernels::Activation;
    Value const normed = norm(pass, in);
    Value x = add(pass, in, dropout(pass, attention(pass, normed), 0.25));
    x = add(pass, x, mlp(pass, normed));
    (void)activate(pass, gelu, twice(pass, x));  // nobody reads it
    Value const half = twice(pass, twice(pass, x)), doubled = add(pass, half, half);
    Value const gated = gated_activate(pass, silu, half, half);
    Value const through = narrow(pass, activate(pass, gelu, wide(pass, doubled)));
    return add(pass, add(pass, gated_activate(pass, silu, doubled, through), gated),
               multiply(pass, multiply(pass, x, gain), gain));
  }

  Norm norm;
  Attention attention;
  Mlp mlp;
  Linear twice, wide, narrow;
  std::size_t gain;
};

struct Narrow final : Layer {
  Narrow(Parameters& p, std::int64_t in, std::int64_t out) : part(p, "part", {in, out}) {}
  Value forward(LayerPass& pass, Value const& in) const override { return part(pass, in); }
  Linear part;
};
struct Heads final : Layer {
  Heads(Parameters& p, int heads, int kv_heads, int dropouts = 0)
      : part(p, "attention", {.width = width, .heads = heads, .kv_heads = kv_heads}), n(dropouts) {}
  Value forward(LayerPass& pass, Value const& in) const override {
    Value out = part(pass, in);
    for (int i = 0; i < n; ++i) out = dropout(pass, out, 0.1);
    return out;
  }
  Attention part;
  int n;
};
inline ComposedOptions small_options() {
  auto config = ConfigTree::object();
  config.set("model_type", "own");
  return {.config = config, .width = width, .vocabulary = vocabulary, .positions = positions};
}

inline test::ResidentParams::Fill spread_weights() {
  return [](memory::ParameterSpec const& spec, float* out) {
    for (std::int64_t i = 0; i < spec.numel(); ++i)
      out[i] =
          0.6f * test::unit_value(spec.name.size() * 7 + static_cast<std::size_t>(spec.name.back()),
                                  static_cast<std::uint64_t>(i)) +
          (spec.shape.size() == 1 ? 0.7f : 0.0f);
  };
}

/// The message of a refusal.
template <class Build>
std::string refusal(Build const& build) {
  try {
    build();
  } catch (ConfigError const& e) {
    return e.what();
  }
  return "nothing was thrown";
}

template <class OwnLayer, class... More>
std::string refusal_of_layer(More... more) {
  return refusal([&] {
    ComposedLm lm(small_options());
    lm.add_layer<OwnLayer>("layers.0", more...);
    std::move(lm).build(Dtype::fp32);
  });
}

}  // namespace tessera::model::test_layers
