#pragma once
/// The stored cases of tests/oracles/gpt2.py.

#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tessera/model/registry.hpp"

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

struct Gpt2Case {
  std::string name;
  std::int64_t rows, sequence;
  ConfigTree config;
  double loss;
  std::vector<float> last_logits;
  std::map<std::string, std::vector<float>> gradients;
  ConfigTree entry;  ///< with the bounds of the 16-bit types

  std::int64_t predictions() const { return rows * (sequence - 1); }
  std::vector<std::int32_t> tokens() const {
    auto const vocabulary = static_cast<double>(config.at("vocab_size").as_int());
    std::vector<std::int32_t> out;
    for (std::int64_t i = 0; i < rows * sequence; ++i)
      out.push_back(static_cast<std::int32_t>(
          std::floor((static_cast<double>(unit_value(1000, static_cast<std::uint64_t>(i))) + 1.0) /
                     2.0 * vocabulary)));
    return out;
  }
};

inline void PrintTo(Gpt2Case const& c, std::ostream* out) { *out << c.name; }

inline std::vector<Gpt2Case> const& gpt2_cases() {
  static std::vector<Gpt2Case> const cases = [] {
    std::string const stem = TESSERA_TEST_DATA "/model/data/gpt2_cases";
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
    std::vector<Gpt2Case> out;
    ConfigTree const index = ConfigTree::read(stem + ".json");
    for (auto const& e : index.as_array()) {
      Gpt2Case c{e.at("name").as_string(),
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
  }();
  return cases;
}

/// Weights of the generator: parameter number n (from 1) is stream n.
inline ResidentParams::Fill generator_weights() {
  return [stream = std::uint64_t{0}](memory::ParameterSpec const& spec, float* out) mutable {
    ++stream;
    bool const gain = spec.name.find(".ln_") != std::string::npos && spec.name.ends_with("weight");
    for (std::int64_t i = 0; i < spec.numel(); ++i)
      out[i] = unit_value(stream, static_cast<std::uint64_t>(i)) * 0.25f + (gain ? 1.0f : 0.0f);
  };
}

/// A model with its weights and the queue it runs on.
struct Bench {
  std::unique_ptr<model::CausalLm> lm;
  ResidentParams params;
  std::unique_ptr<memory::Queue> queue = memory::make_inline_queue("compute");

  Bench(ConfigTree const& config, Dtype dtype,
        ResidentParams::Fill const& fill = generator_weights())
      : lm(model::make_model(config, dtype)), params(lm->units(), dtype, fill) {}

  double train(model::Batch const& batch, model::PassSettings const& settings) {
    return lm->train(batch, settings, params, *queue).value();
  }
  double evaluate(model::Batch const& batch) { return lm->evaluate(batch, params, *queue).value(); }
  std::vector<float> next_token_logits(model::Batch const& batch) {
    return lm->next_token_logits(batch, params, *queue);
  }
};

}  // namespace tessera::test
