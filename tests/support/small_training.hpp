#pragma once
/// A few optimizer steps of a small GPT-2 or Llama, with two micro-steps each (the second one
/// recomputes), for comparing devices, transports and queues.

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/core/random.hpp"
#include "tessera/model/decoder/causal_lm.hpp"
#include "tessera/model/families/registry.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::test {

struct SmallTraining {
  static constexpr std::int64_t vocabulary = 131, length = 40, rows = 2;
  static constexpr int micro_steps = 2;
  zero::EngineConfig config;
  int steps = 4;
  std::string family = "gpt2";         ///< or "llama", which has no dropout
  std::optional<Dtype> products = {};  ///< dtype of products; none: that of the weights
  bool fp8 = false;
  bool has_versions = true;            ///< see memory::WeightLease::version()
  std::string frozen_parameters = {};  ///< see model::ModelOptions
  double dropout = 0.1;                ///< everywhere
  std::function<void(int)> before_step = [](int) {};
};

/// With everything switched on that takes part in a step.
inline SmallTraining small_training(int stage, Dtype dtype) {
  SmallTraining out;
  out.config.partition = zero::partition_of(stage);
  out.config.dtype = dtype;
  out.config.max_grad_norm = 1.0;
  out.config.optimizer = optim::make_spec("AdamW", {{"weight_decay", 0.1}});
  out.config.accumulation_steps = out.micro_steps;
  return out;
}

inline ConfigTree small_gpt2(double dropout = 0.1) {
  ConfigTree config = model::default_config("gpt2");
  config.set("n_layer", 2)
      .set("n_embd", 48)
      .set("n_head", 3)
      .set("vocab_size", SmallTraining::vocabulary)
      .set("n_positions", 64);
  for (char const* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) config.set(key, dropout);
  return config;
}

inline ConfigTree small_llama() {
  ConfigTree config = model::default_config("llama");
  config.set("num_hidden_layers", 2)
      .set("hidden_size", 48)
      .set("intermediate_size", 72)
      .set("num_attention_heads", 6)
      .set("num_key_value_heads", 2)
      .set("vocab_size", SmallTraining::vocabulary)
      .set("max_position_embeddings", 64);
  return config;
}

inline std::vector<std::int32_t> small_tokens(int step, int micro, int rank) {
  Philox const random{7, static_cast<std::uint64_t>(step * 1000 + micro * 100 + rank)};
  std::vector<std::int32_t> tokens;
  for (std::uint64_t i = 0;
       i < static_cast<std::uint64_t>(SmallTraining::rows * SmallTraining::length); ++i)
    tokens.push_back(static_cast<std::int32_t>(random.uniform(i) *
                                               static_cast<float>(SmallTraining::vocabulary)));
  return tokens;
}

/// The parameters of another provider, which may change at any time.
class ParamsWithoutVersions final : public memory::ParamProvider {
 public:
  explicit ParamsWithoutVersions(memory::ParamProvider& provider) : provider_(provider) {}
  void begin_pass(memory::Pass pass, std::vector<memory::UnitIndex> acquisitions) override {
    provider_.begin_pass(pass, std::move(acquisitions));
  }
  memory::WeightLease acquire(memory::UnitIndex unit, memory::Queue& compute) override {
    auto const lease = std::make_shared<memory::WeightLease>(provider_.acquire(unit, compute));
    std::vector<memory::ConstTensorView> views;
    for (std::size_t i = 0; i < lease->size(); ++i) views.push_back((*lease)[i]);
    return {std::move(views), [lease] { *lease = {}; }};
  }
  memory::GradientLease gradient(memory::UnitIndex unit, memory::Queue& compute) override {
    return provider_.gradient(unit, compute);
  }
  void gradient_complete(memory::UnitIndex unit, memory::Queue& compute) override {
    provider_.gradient_complete(unit, compute);
  }

 private:
  memory::ParamProvider& provider_;
};

struct SmallResult {
  std::vector<double> losses, norms, scales;
  std::vector<bool> skipped;
  std::vector<float> master_weights;  ///< master weights of this rank's shards
  std::vector<float> states;          ///< the optimizer's, one after the other
  zero::MemoryReport memory = {};
};

inline SmallResult train_small(SmallTraining const& t, comm::Collectives& comm,
                               memory::Queue& compute) {
  model::ModelOptions options(t.config.dtype, t.products.value_or(t.config.dtype));
  options.frozen_parameters = t.frozen_parameters;
  options.fp8 = t.fp8;
  auto const model =
      model::make_model(t.family == "llama" ? small_llama() : small_gpt2(t.dropout), options);
  auto const engine = zero::make_engine(t.config, model->units(), comm, compute);
  engine->initialize([&](memory::UnitIndex unit, int parameter, std::int64_t first,
                         std::int64_t numel, float* out) {
    auto const& spec = model->units()[static_cast<std::size_t>(unit)]
                           .parameters[static_cast<std::size_t>(parameter)];
    model::initialize_parameter(spec, 3, first, numel, out);
  });
  SmallResult result;
  ParamsWithoutVersions without_versions(*engine);
  memory::ParamProvider& params = without_versions;
  double const predictions = static_cast<double>(t.rows * (t.length - 1) * t.micro_steps);
  for (int step = 0; step < t.steps; ++step) {
    t.before_step(step);
    engine->begin_step();
    std::vector<model::LossSum> losses;
    for (int micro = 0; micro < t.micro_steps; ++micro) {
      engine->begin_micro_step(micro, t.micro_steps);
      auto const tokens = small_tokens(step, micro, comm.rank());
      model::PassSettings settings;
      settings.dropout_seed = 5;
      settings.step = static_cast<std::uint64_t>(step);
      settings.gradient_scale =
          static_cast<float>(engine->gradient_scale() / (predictions * comm.size()));
      settings.recompute = micro == 1 ? Recompute::block : Recompute::none;
      losses.push_back(model->train(
          {tokens.data(), t.rows, t.length, (micro * comm.size() + comm.rank()) * t.rows}, settings,
          t.has_versions ? *engine : params, compute));
    }
    auto const update = engine->finish_step(1e-3);
    result.norms.push_back(update.grad_norm);
    result.scales.push_back(update.loss_scale);
    result.skipped.push_back(update.skipped);
    double sum = 0.0;
    for (auto const& loss : losses) sum += loss.value();
    result.losses.push_back(sum / predictions);
  }
  result.memory = engine->memory();
  for (auto const& state : engine->state()) {
    auto& out = state.name == optim::master_weights_name ? result.master_weights : result.states;
    auto const plan = engine->plan().of_extent(state.extent);
    for (auto u = memory::first_unit; u < plan.end_unit(); ++u)
      out.insert(out.end(), state.unit_shards[position(u)],
                 state.unit_shards[position(u)] + plan.unit(u).shard_numel);
  }
  return result;
}

/// |a - b| / |b| of vectors of the same length.
inline double relative_difference(std::vector<float> const& a, std::vector<float> const& b) {
  double difference = 0.0, size = 0.0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

}  // namespace tessera::test
