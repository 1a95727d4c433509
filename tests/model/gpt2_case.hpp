#pragma once
/// The stored cases of tests/oracles/gpt2.py.

#include "stored_case.hpp"

namespace tessera::test {

using Gpt2Case = StoredCase;

inline std::vector<Gpt2Case> const& gpt2_cases() {
  static std::vector<Gpt2Case> const cases = read_cases("gpt2_cases");
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

/// With the generator's weights.
struct Bench : StoredModel {
  Bench(ConfigTree const& config, Dtype dtype,
        ResidentParams::Fill const& fill = generator_weights())
      : StoredModel(config, dtype, fill) {}
};

}  // namespace tessera::test
