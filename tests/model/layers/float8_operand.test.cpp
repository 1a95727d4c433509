/// Linear layers and models with fp8 products against references in double precision.
#include "layers/linear.hpp"

#include "family_suite.hpp"
#include "float8_reference.hpp"
#include "gpt2_case.hpp"
#include "tessera/core/random.hpp"
#include "tessera/kernels/launch/kernel_times.hpp"

namespace tessera::model::detail::test {
namespace {

using tessera::test::through_float8;

std::vector<float> numbers(std::size_t n, std::uint64_t seed) {
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i)
    out[i] = static_cast<float>(bfloat16(2.0f * Philox{seed, 1}.uniform(i) - 1.0f));
  return out;
}

/// One layer with weights in fp32 or bf16, and what a forward and two backward passes give.
struct Fp8Layer {
  static constexpr std::int64_t rows = 10, in = 48, out = 32;
  Dtype weights;
  UnitSpec unit;
  Linear linear;
  tessera::test::ResidentParams params;
  std::unique_ptr<Queue> queue = memory::make_inline_queue("compute");
  Arena arena{"activations", memory::Purpose::activations};
  std::vector<float> x = numbers(rows * in, 3), dy = numbers(rows * out, 4);

  Fp8Layer(WeightLayout of, Dtype dtype)
      : weights(dtype),
        linear(unit, "linear", {.in = in, .out = out, .layout = of}, 0.1),
        params({unit}, dtype, [](memory::ParameterSpec const& spec, float* to) {
          auto const values = numbers(static_cast<std::size_t>(spec.numel()), spec.name.size());
          std::copy(values.begin(), values.end(), to);
        }) {}

  PassContext context(bool fp8) {
    return {.compute = *queue,
            .arena = arena,
            .dtype = Dtype::bf16,
            .batch = 1,
            .sequence = rows,
            .fp8 = fp8,
            .stream_dtype = weights};
  }
  /// Output, gradient of the input, and with them those of the parameters.
  std::pair<std::vector<float>, std::vector<float>> run(bool shares_casts = false) {
    ArenaScope const scope(arena);
    PassContext const pass = context(true);
    auto const fp32 = [&](std::int64_t columns) {
      return pass.arena.allocate(Dtype::fp32, {rows, columns});
    };
    TensorView const y = fp32(out), dx = fp32(in);
    params.begin_pass(memory::Pass::training, {memory::first_unit});
    auto const weights = params.acquire(memory::first_unit, *queue);
    auto const gradients = params.gradient(memory::first_unit, *queue);
    TensorView const to_x(x.data(), Dtype::fp32, {rows, in}),
        to_dy(dy.data(), Dtype::fp32, {rows, out});
    BackwardLeases const leases{weights, gradients};
    if (shares_casts) {
      linear.forward(pass, weights, y, linear.forward_input(pass, to_x));
      linear.backward(pass, leases, dx, to_dy, linear.backward_input(pass, leases, to_x));
    } else {
      linear.forward(pass, weights, y, to_x);
      linear.backward(pass, leases, dx, to_dy, to_x);
    }
    auto const values = [](TensorView const& v) {
      return std::vector<float>(v.as<float>(), v.as<float>() + v.numel());
    };
    return {values(y), values(dx)};
  }
};

/// Each product is that of the quantized operands: exact numbers, so only the sums and the last
/// rounding differ.
TEST(Fp8Linear, ProductsAreThoseOfTheQuantizedOperands) {
  for (auto const layout : {WeightLayout::in_out, WeightLayout::out_in})
    for (Dtype const dtype : {Dtype::fp32, Dtype::bf16}) {
      Fp8Layer layer(layout, dtype);
      constexpr auto rows = Fp8Layer::rows, in = Fp8Layer::in, out = Fp8Layer::out;
      auto const [y, dx] = layer.run();
      auto const w = through_float8(layer.params.weight_values(0, 0), Float8::e4m3),
                 x = through_float8(layer.x, Float8::e4m3),
                 dy = through_float8(layer.dy, Float8::e5m2);
      auto const bias = layer.params.weight_values(0, 1), dw = layer.params.gradient_values(0, 0);
      auto const weight = [&](std::int64_t i, std::int64_t o) {
        return static_cast<std::size_t>(layout == WeightLayout::in_out ? i * out + o : o * in + i);
      };
      auto const at = [](std::int64_t row, std::int64_t columns, std::int64_t c) {
        return static_cast<std::size_t>(row * columns + c);
      };
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t o = 0; o < out; ++o) {
          double want = bias[static_cast<std::size_t>(o)];
          for (std::int64_t i = 0; i < in; ++i) want += x[at(r, in, i)] * w[weight(i, o)];
          EXPECT_NEAR(y[at(r, out, o)], want, 1e-5);
        }
        for (std::int64_t i = 0; i < in; ++i) {
          double want = 0.0;
          for (std::int64_t o = 0; o < out; ++o) want += dy[at(r, out, o)] * w[weight(i, o)];
          EXPECT_NEAR(dx[at(r, in, i)], want, 1e-5);
        }
      }
      for (std::int64_t i = 0; i < in; ++i)
        for (std::int64_t o = 0; o < out; ++o) {
          double want = 0.0;
          for (std::int64_t r = 0; r < rows; ++r) want += x[at(r, in, i)] * dy[at(r, out, o)];
          EXPECT_NEAR(dw[weight(i, o)], want,
                      1e-5 + (dtype == Dtype::bf16 ? 0x1p-8 * std::abs(want) : 0.0));
        }
    }
}

TEST(Fp8Linear, ASharedCastGivesTheSameBits) {
  for (auto const layout : {WeightLayout::in_out, WeightLayout::out_in}) {
    Fp8Layer own(layout, Dtype::fp32), shared(layout, Dtype::fp32);
    EXPECT_EQ(own.run(false), shared.run(true));
    for (std::size_t p : {0, 1})
      EXPECT_EQ(own.params.gradient_values(0, p), shared.params.gradient_values(0, p));
  }
}

/// Bias gradients are sums, not products: they are those of bf16.
TEST(Fp8Linear, ASecondMicroStepAddsAndTheBiasGradientIsThatOfBf16) {
  Fp8Layer layer(WeightLayout::out_in, Dtype::fp32);
  layer.run();
  auto const once = layer.params.gradient_values(0, 0), bias = layer.params.gradient_values(0, 1);
  for (std::int64_t o = 0; o < Fp8Layer::out; ++o) {
    double want = 0.0;
    for (std::int64_t r = 0; r < Fp8Layer::rows; ++r)
      want += layer.dy[static_cast<std::size_t>(r * Fp8Layer::out + o)];
    EXPECT_NEAR(bias[static_cast<std::size_t>(o)], want, 1e-5);
  }
  layer.run();
  auto const twice = layer.params.gradient_values(0, 0);
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(twice[i], 2.0f * once[i], 1e-5);
}

TEST(Fp8Linear, NumbersThatAreNotFiniteReachTheGradients) {
  for (bool const in_gradient : {false, true}) {
    Fp8Layer layer(WeightLayout::in_out, Dtype::fp32);
    (in_gradient ? layer.dy : layer.x)[5] = HUGE_VALF;
    layer.run();
    EXPECT_TRUE(std::isnan(layer.params.gradient_values(0, 0)[0]));
  }
}

TEST(Fp8Linear, WidthsThatAreNoMultipleOf16AreRefused) {
  UnitSpec unit;
  Linear const linear(unit, "h.0.mlp.c_fc", {.in = 24, .out = 32}, 0.1);
  tessera::test::ResidentParams params({unit}, Dtype::fp32, [](auto const&, float*) {});
  auto const queue = memory::make_inline_queue("compute");
  Arena arena{"activations", memory::Purpose::activations};
  PassContext const pass{.compute = *queue,
                         .arena = arena,
                         .dtype = Dtype::bf16,
                         .batch = 1,
                         .sequence = 2,
                         .fp8 = true,
                         .stream_dtype = Dtype::fp32};
  params.begin_pass(memory::Pass::training, {memory::first_unit});
  auto const weights = params.acquire(memory::first_unit, *queue);
  TensorView const x = pass.allocate(2, 24), y = pass.allocate(2, 32);
  try {
    linear.forward(pass, weights, y, x);
    FAIL() << "no error";
  } catch (ConfigError const& e) {
    EXPECT_EQ(
        std::string(e.what()),
        "--fp8: h.0.mlp.c_fc has 24 inputs and 32 outputs, but fp8 products need multiples of 16; "
        "leave fp8 out, or change the sizes of the model");
  }
}

}  // namespace
}  // namespace tessera::model::detail::test

namespace tessera::test {
namespace {

ConfigTree small_gpt2() {
  return model::apply_overrides(model::default_config("gpt2"),
                                "n_embd=64,n_head=4,n_layer=2,n_positions=32,vocab_size=96");
}

/// A model with fp8 products in its blocks, or without.
struct Fp8Model {
  std::unique_ptr<model::CausalLm> lm;
  ResidentParams params;
  std::unique_ptr<memory::Queue> queue = memory::make_inline_queue("compute");
  std::vector<std::int32_t> tokens;
  static constexpr std::int64_t rows = 3, sequence = 20;  // 60 positions: no multiple of 16

  Fp8Model(ConfigTree const& config, Dtype weights, bool fp8,
           std::optional<model::LoraOptions> const& lora = {})
      : lm(make(config, weights, fp8, lora)),
        params(lm->units(), weights,
               config.at("model_type").as_string() == "gpt2"
                   ? generator_weights()
                   : named_weights(config.at("model_type").as_string())) {
    for (std::int64_t i = 0; i < rows * sequence; ++i)
      tokens.push_back(static_cast<std::int32_t>(i * 7919 % lm->vocabulary_size()));
  }
  static std::unique_ptr<model::CausalLm> make(ConfigTree const& config, Dtype weights, bool fp8,
                                               std::optional<model::LoraOptions> const& lora) {
    model::ModelOptions options(weights, Dtype::bf16);
    options.fp8 = fp8;
    options.lora = lora;
    return model::make_model(config, options);
  }
  model::Batch batch() const { return {tokens.data(), rows, sequence}; }
  double train(model::PassSettings const& settings = {}) {
    return lm->train(batch(), settings, params, *queue).value();
  }
};

/// Relative distance of all gradients together.
double distance(ResidentParams& a, ResidentParams& b) {
  double difference = 0.0, norm = 0.0;
  a.for_each([&](int unit, std::size_t p, memory::ParameterSpec const&) {
    auto const x = a.gradient_values(unit, p), y = b.gradient_values(unit, p);
    for (std::size_t i = 0; i < x.size(); ++i) {
      difference += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
      norm += std::pow(static_cast<double>(y[i]), 2);
    }
  });
  return std::sqrt(difference / norm);
}

/// e4m3 rounds by up to 2^-4 and e5m2 by up to 2^-3 of a number; over the terms of sums these
/// errors average out.
TEST(Fp8Model, LossAndGradientsAreNearThoseOfBf16) {
  for (Dtype const weights : {Dtype::fp32, Dtype::bf16}) {
    Fp8Model fp8(small_gpt2(), weights, true), bf16(small_gpt2(), weights, false);
    double const loss = bf16.train();
    EXPECT_NEAR(fp8.train() / loss, 1.0, 5e-3);
    double const apart = distance(fp8.params, bf16.params);
    EXPECT_LT(apart, 0.2);
    EXPECT_GT(apart, 0.05) << "products are in fp8";
  }
}

TEST(Fp8Model, EvaluationIsThatOfBf16) {
  Fp8Model fp8(small_gpt2(), Dtype::fp32, true), bf16(small_gpt2(), Dtype::fp32, false);
  EXPECT_EQ(fp8.lm->evaluate(fp8.batch(), fp8.params, *fp8.queue).value(),
            bf16.lm->evaluate(bf16.batch(), bf16.params, *bf16.queue).value());
}

TEST(Fp8Model, RecomputationGivesTheSameBitsInThePlannedMemory) {
  auto const held = [] {
    return memory::MemoryTracker::of_process().current(memory::Purpose::activations);
  };
  Fp8Model kept(small_gpt2(), Dtype::bf16, true);
  kept.lm->reserve_activations(
      kept.lm->activation_bytes({.rows = Fp8Model::rows, .sequence = Fp8Model::sequence},
                                memory::MemorySpace::host),
      *kept.queue);
  auto const reserved = held();
  double const loss = kept.train();
  EXPECT_EQ(held(), reserved);
  for (auto const recompute : {Recompute::light, Recompute::block}) {
    Fp8Model recomputed(small_gpt2(), Dtype::bf16, true);
    EXPECT_EQ(loss, recomputed.train({.recompute = recompute}));
    EXPECT_EQ(distance(kept.params, recomputed.params), 0.0);
  }
}

/// Only adapters get gradients, whose own products stay bf16.
TEST(Fp8Model, AdaptersTrain) {
  model::LoraOptions lora;
  lora.rank = 4;
  Fp8Model fp8(small_gpt2(), Dtype::fp32, true, lora), bf16(small_gpt2(), Dtype::fp32, false, lora);
  EXPECT_NEAR(fp8.train() / bf16.train(), 1.0, 5e-3);
  std::size_t adapters = 0;
  fp8.params.for_each([&](int unit, std::size_t p, memory::ParameterSpec const& spec) {
    if (!spec.trains) return;
    ++adapters;
    auto const x = fp8.params.gradient_values(unit, p), y = bf16.params.gradient_values(unit, p);
    double apart = 0.0, norm = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      apart += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
      norm += std::pow(static_cast<double>(y[i]), 2);
    }
    EXPECT_LE(std::sqrt(apart), 0.3 * std::sqrt(norm)) << spec.name;
  });
  EXPECT_EQ(adapters, 4u);
}

/// Separate projections and gates.
ConfigTree small_llama() {
  return model::apply_overrides(
      model::default_config("llama"),
      "hidden_size=64,intermediate_size=96,num_attention_heads=4,num_key_value_heads=2,"
      "num_hidden_layers=2,max_position_embeddings=32,vocab_size=96");
}

/// Queries, keys and values read the same rows, and so do gate and expansion.
TEST(Fp8Model, CastsAnInputOnceForAllLayersThatReadIt) {
  Fp8Model fp8(small_llama(), Dtype::bf16, true);
  fp8.train();
  kernels::KernelTimes times;
  fp8.train();
  std::int64_t casts = 0;
  for (auto const& entry : times.take())
    if (entry.kernel == "tessera::kernels::float8_cast") casts += entry.calls;
  // which are next to each other: one product each
  constexpr int blocks = 2, products = 4, inputs = 4;
  // forward: inputs and weights; backward: gradients, inputs and weights
  EXPECT_EQ(casts, blocks * (inputs + products + products + inputs + products));
}

TEST(Fp8Model, LlamaTrains) {
  ConfigTree const llama = small_llama();
  Fp8Model fp8(llama, Dtype::bf16, true), bf16(llama, Dtype::bf16, false);
  EXPECT_NEAR(fp8.train() / bf16.train(), 1.0, 5e-3);
  EXPECT_LT(distance(fp8.params, bf16.params), 0.3);
}

}  // namespace
}  // namespace tessera::test
