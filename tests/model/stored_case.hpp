#pragma once
/// Losses, logits and gradients of models that the generators of tests/oracles have stored.

#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tessera/model/families/registry.hpp"

#include "resident_params.hpp"

namespace tessera::test {

/// 24-bit uniform in [-1, 1): splitmix64 of (stream << 32) + element, as unit() of the generator.
inline float unit_value(std::uint64_t stream, std::uint64_t element) {
  std::uint64_t z = (stream << 32) + (element + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return static_cast<float>(z >> 40) * 0x1.0p-23f - 1.0f;
}

struct StoredCase {
  std::string name;
  std::int64_t rows, sequence;
  ConfigTree config;
  double loss;
  std::vector<float> last_logits;
  std::map<std::string, std::vector<float>> gradients;
  ConfigTree entry;  ///< with the bounds of the 16-bit types, and the trajectory

  /// Returns the document options of a case with several documents per row.
  model::DocumentOptions documents() const {
    auto const* const given = entry.find("documents");
    if (!given) return {};
    return {static_cast<std::int32_t>(given->at("eod_token").as_int()),
            given->get_bool("reset_attention_mask", false),
            given->get_bool("reset_position_ids", false), given->get_bool("eod_mask_loss", false)};
  }
  std::int64_t predictions() const {
    auto const first = tokens();
    return model::count_predictions({first.data(), rows, sequence}, documents());
  }
  /// Returns the tokens of micro-batch number @p batch of a trajectory.
  std::vector<std::int32_t> tokens(std::uint64_t batch = 0) const {
    auto const vocabulary = static_cast<double>(config.at("vocab_size").as_int());
    std::vector<std::int32_t> out;
    for (std::int64_t i = 0; i < rows * sequence; ++i)
      out.push_back(static_cast<std::int32_t>(std::floor(
          (static_cast<double>(unit_value(1000 + batch, static_cast<std::uint64_t>(i))) + 1.0) /
          2.0 * vocabulary)));
    return out;
  }
};

inline void PrintTo(StoredCase const& c, std::ostream* out) { *out << c.name; }

/// The cases of "<stem>.json" and "<stem>.bin" below tests/model/data.
inline std::vector<StoredCase> read_cases(std::string const& name) {
  std::string const stem = std::string(TESSERA_TEST_DATA "/model/data/") + name;
  std::ifstream blob(stem + ".bin", std::ios::binary);
  auto const array = [&](ConfigTree const& where) {
    std::int64_t numel = 1;
    for (auto const& d : where.at("shape").as_array()) numel *= d.as_int();
    std::vector<float> out(static_cast<std::size_t>(numel));
    blob.seekg(where.at("offset").as_int() * 4);
    blob.read(reinterpret_cast<char*>(out.data()), numel * 4);
    EXPECT_TRUE(blob) << stem << ".bin is too short";
    return out;
  };
  std::vector<StoredCase> out;
  ConfigTree const index = ConfigTree::read(stem + ".json");
  for (auto const& e : index.as_array()) {
    StoredCase c{e.at("name").as_string(),
                 e.at("rows").as_int(),
                 e.at("sequence").as_int(),
                 e.at("config"),
                 e.at("loss").as_double(),
                 array(e.at("last_logits")),
                 {},
                 e};
    for (auto const& [name, where] : e.at("gradients").as_object())
      c.gradients[name] = array(where);
    out.push_back(std::move(c));
  }
  return out;
}

/// Logits of the last position of each row.
inline std::vector<float> next_token_logits(model::CausalLm& lm, model::Batch const& batch,
                                            ResidentParams& params, memory::Queue& queue) {
  auto const cache = lm.make_cache(batch.rows, batch.sequence, queue);
  std::vector<std::int32_t> const first(static_cast<std::size_t>(batch.rows), 0),
      counts(first.size(), static_cast<std::int32_t>(batch.sequence));
  return lm.decode({batch.tokens, batch.rows, batch.sequence, first.data(), counts.data()}, *cache,
                   params, queue);
}

/// A model with its weights and the queue it runs on.
struct StoredModel {
  std::unique_ptr<model::CausalLm> lm;
  ResidentParams params;
  std::unique_ptr<memory::Queue> queue = memory::make_inline_queue("compute");

  StoredModel(ConfigTree const& config, model::ModelOptions const& options,
              ResidentParams::Fill const& fill)
      : StoredModel(model::make_model(config, options), options.dtype, fill) {}
  StoredModel(std::unique_ptr<model::CausalLm> of, Dtype dtype, ResidentParams::Fill const& fill)
      : lm(std::move(of)), params(lm->units(), dtype, fill) {}

  double train(model::Batch const& batch, model::PassSettings const& settings) {
    return lm->train(batch, settings, params, *queue).value();
  }
  double evaluate(model::Batch const& batch) { return lm->evaluate(batch, params, *queue).value(); }
  std::vector<float> next_token_logits(model::Batch const& batch) {
    return test::next_token_logits(*lm, batch, params, *queue);
  }
};

}  // namespace tessera::test
