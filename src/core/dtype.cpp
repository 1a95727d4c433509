#include "tessera/core/dtype.hpp"

#include <string>

#include "tessera/core/error.hpp"

namespace tessera {

std::string_view name_of(Dtype dtype) {
  static constexpr char const* names[] = {"fp32",  "fp16",  "bf16", "fp64",
                                          "int32", "int64", "uint8"};
  return names[static_cast<std::size_t>(dtype)];
}

Dtype dtype_from_name(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  if (name == "fp32" || name == "float32" || name == "float") return Dtype::fp32;
  if (name == "fp16" || name == "float16" || name == "half") return Dtype::fp16;
  if (name == "bf16" || name == "bfloat16") return Dtype::bf16;
  if (name == "fp64" || name == "float64" || name == "double") return Dtype::fp64;
  if (name == "int32" || name == "int") return Dtype::int32;
  if (name == "int64" || name == "long") return Dtype::int64;
  if (name == "uint8" || name == "byte") return Dtype::uint8;
  throw ConfigError(
      concat("unknown element type '", std::string(name), "'; use fp32, fp16 or bf16"));
}

}  // namespace tessera
