#pragma once
/// Flags of benchmarks that train a GPT-2 of any shape, its configuration and random tokens.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tessera/core/random.hpp"
#include "tessera/model/families/registry.hpp"

namespace tessera::bench {

using Flags = std::map<std::string, std::string>;

/// @p flags with the values of the command line; ends the program with 64 for an unknown one.
inline Flags read_flags(int argc, char** argv, Flags flags) {
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string const name = std::string(argv[i]).substr(2);
    if (!flags.contains(name)) {
      std::fprintf(stderr, "unknown flag %s\n", argv[i]);
      std::exit(64);
    }
    flags[name] = argv[i + 1];
  }
  return flags;
}

inline std::int64_t number(Flags const& flags, char const* name) {
  return std::int64_t{std::atoll(flags.at(name).c_str())};
}

inline ConfigTree gpt2_config(Flags const& flags) {
  ConfigTree config = model::default_config("gpt2");
  for (auto const& [key, flag] : {std::pair{"n_layer", "layers"},
                                  {"n_embd", "width"},
                                  {"n_head", "heads"},
                                  {"vocab_size", "vocabulary"}})
    config.set(key, number(flags, flag));
  for (char const* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) config.set(key, 0.0);
  return config;
}

inline std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocabulary,
                                               int rank) {
  Philox const random{1, static_cast<std::uint64_t>(rank)};
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>(random.uniform(static_cast<std::uint64_t>(i)) *
                                               static_cast<float>(vocabulary)));
  return tokens;
}

}  // namespace tessera::bench
