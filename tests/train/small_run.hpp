#pragma once
/// The parts of a run, small: sequences of a generated text, a two-layer GPT-2 without dropout, an
/// engine on one process; and a model whose answers a test can compute.

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scratch_files.hpp"
#include "tessera/checkpoint/save/save.hpp"
#include "tessera/comm/base/collectives.hpp"
#include "tessera/comm/compose/host_collectives.hpp"
#include "tessera/data/sampling/sampler.hpp"
#include "tessera/data/sequences/text_dataset.hpp"
#include "tessera/model/decoder/causal_lm.hpp"
#include "tessera/model/families/registry.hpp"
#include "tessera/train/step/model_context.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::test {

inline std::filesystem::path tokenizer_directory() {
  return std::filesystem::path(TESSERA_TEST_DATA) / "../configs/gpt2-8m";
}

/// Sentences from a fixed grammar.
inline std::string small_text(int lines) {
  char const* const subjects[] = {"the hacker", "a system", "the old kernel", "every user"};
  char const* const objects[] = {"the manual", "a large file", "its own code", "the network"};
  std::string out;
  for (unsigned i = 0, state = 12345; i < static_cast<unsigned>(lines); ++i) {
    state = state * 1103515245u + 12345u;
    out +=
        std::string(subjects[(state >> 16) % 4]) + " reads " + objects[(state >> 20) % 4] + ".\n";
  }
  return out;
}

inline data::TokenSequences small_sequences(ScratchFiles const& files, std::int64_t block_size,
                                            int lines = 1000) {
  data::SequenceRequest request;
  request.text = files.write("text.txt", small_text(lines));
  request.block_size = block_size;
  request.cache_folder = files.directory() / ".cache";
  return data::build_or_open_sequences(request, *data::load_tokenizer(tokenizer_directory()));
}

/// Its evaluation loss is the sum of all tokens in the batch; its likeliest next token is the last
/// one plus one.
class CountingModel : public model::CausalLm {
 public:
  std::vector<memory::UnitSpec> const& units() const override { return units_; }
  std::string_view family() const override { return "counting"; }
  ConfigTree const& config() const override { return config_; }
  std::int64_t vocabulary_size() const override { return 100; }
  std::int64_t max_positions() const override { return 20; }
  model::LossSum train(model::Batch const& batch, model::PassSettings const&,
                       memory::ParamProvider& weights, memory::Queue& compute) override {
    return evaluate(batch, weights, compute);
  }
  model::LossSum evaluate(model::Batch const& batch, memory::WeightProvider&,
                          memory::Queue& compute) override {
    ++passes;
    double sum = 0.0;
    for (std::int64_t i = 0; i < batch.rows * batch.sequence; ++i) sum += batch.tokens[i];
    return {std::make_shared<double const>(sum), compute.record()};
  }
  std::unique_ptr<model::KeyValueCache> make_cache(std::int64_t rows, std::int64_t positions,
                                                   memory::Queue&) const override {
    struct Cache final : model::KeyValueCache {
      Cache(std::int64_t r, std::int64_t p) : rows_(r), positions_(p) {}
      std::int64_t rows() const override { return rows_; }
      std::int64_t positions() const override { return positions_; }
      std::size_t bytes() const override { return 0; }
      std::int64_t rows_, positions_;
    };
    return std::make_unique<Cache>(rows, positions);
  }
  std::vector<float> decode(model::DecodeBatch const& batch, model::KeyValueCache& cache,
                            memory::WeightProvider&, memory::Queue&) override {
    EXPECT_EQ(cache.rows(), batch.rows);
    queries.push_back(batch.queries);
    std::vector<float> logits(static_cast<std::size_t>(100 * batch.rows), 0.0f);
    for (std::int64_t row = 0; row < batch.rows; ++row) {
      EXPECT_LE(batch.first[row] + batch.queries, cache.positions());
      auto const last = batch.tokens[row * batch.queries + batch.counts[row] - 1];
      logits[static_cast<std::size_t>(100 * row + last + 1)] = 5.0f;
    }
    return logits;
  }
  void decode_nothing(memory::WeightProvider&, memory::Queue&) override { ++idle_passes; }
  std::size_t activation_bytes(model::PlannedPass const& pass, memory::MemorySpace) override {
    return static_cast<std::size_t>(pass.rows * pass.sequence) * bytes_per_token *
           percent_kept[static_cast<std::size_t>(pass.recompute)] / 100;
  }
  void reserve_activations(std::size_t bytes, memory::Queue&) override { reserved = bytes; }

  std::size_t bytes_per_token = 8, reserved = 0;
  std::array<std::size_t, 3> percent_kept{100, 100, 100};  ///< by Recompute
  std::int64_t passes = 0;
  std::vector<std::int64_t> queries;  ///< new tokens per row of each generation pass
  std::int64_t idle_passes = 0;

 private:
  std::vector<memory::UnitSpec> units_;
  ConfigTree config_ = ConfigTree::object();
};

/// For models that use no weights.
struct NoWeights : memory::WeightProvider {
  void begin_pass(memory::Pass, std::vector<memory::UnitIndex>) override {}
  memory::WeightLease acquire(memory::UnitIndex, memory::Queue&) override { return {}; }
};

/// A two-layer GPT-2 in an engine on one process.
struct SmallRun {
  explicit SmallRun(zero::EngineConfig const& engine_config = {},
                    std::unique_ptr<comm::Collectives> over = comm::make_loopback())
      : comm(std::move(over)) {
    ConfigTree config = model::default_config("gpt2");
    config.set("n_layer", 2).set("n_embd", 16).set("n_head", 2).set("vocab_size", 4096);
    config.set("n_positions", 32);
    for (char const* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) config.set(key, 0.0);
    model = model::make_model(config, Dtype::fp32);
    engine = zero::make_engine(engine_config, model->units(), *comm, *compute);
    engine->initialize(
        [&](memory::UnitIndex u, int p, std::int64_t first, std::int64_t numel, float* out) {
          auto const& unit = model->units()[position(u)];
          model::initialize_parameter(unit.parameters[static_cast<std::size_t>(p)], 3, first, numel,
                                      out);
        });
  }
  train::ModelContext context() { return {*model, *engine, *compute, mesh}; }
  /// A resumable checkpoint of @p step in @p output.
  checkpoint::SaveRequest save_request(std::filesystem::path const& output,
                                       std::int64_t step) const {
    return {.directory = output / "checkpoints",
            .step = step,
            .run_id = "test",
            .plan = engine->plan(),
            .units = model->units(),
            .model_config = model->config(),
            .resolved_config = ConfigTree::object(),
            .trainer_state = ConfigTree::object(),
            .versions = ConfigTree::object()};
  }

  ScratchFiles files;
  std::unique_ptr<comm::Collectives> comm;
  comm::Mesh mesh{*comm};
  std::unique_ptr<memory::Queue> compute = memory::make_inline_queue("compute");
  std::unique_ptr<model::CausalLm> model;
  std::unique_ptr<zero::Engine> engine;
};

}  // namespace tessera::test
