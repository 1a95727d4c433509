#pragma once
/// The results of transformers' decoder parts that tests/oracles/decoder_kernels.py recorded.

#include <string>

#include "reference.hpp"
#include "tessera/core/config_tree.hpp"

namespace tessera::kernels::test {

inline ConfigTree decoder_oracle(std::string const& part) {
  return ConfigTree::read(std::string(TESSERA_TEST_DATA) + "/oracles/decoder_kernels.json")
      .at(part);
}
inline Reals reals(ConfigTree const& values) {
  Reals out;
  for (auto const& x : values.as_array()) out.push_back(x.as_double());
  return out;
}
inline Array array_of(ConfigTree const& values, Dtype dtype) {
  Reals const numbers = reals(values);
  Array out(dtype, {static_cast<std::int64_t>(numbers.size())});
  for (std::size_t i = 0; i < numbers.size(); ++i)
    out.set(static_cast<std::int64_t>(i), numbers[i]);
  return out;
}
inline Dtype dtype_of(ConfigTree const& stored) {
  return stored.at("dtype").as_string() == "bfloat16" ? Dtype::bf16 : Dtype::fp32;
}

}  // namespace tessera::kernels::test
