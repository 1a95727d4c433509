#include "interchange/detail/model_directory.hpp"

#include <string_view>

#include "interchange/detail/safetensors_layout.hpp"
#include "interchange/detail/stream_writer.hpp"
#include "tessera/checkpoint/interchange/tensor_writer.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"

namespace tessera::checkpoint::detail {

namespace fs = std::filesystem;

std::string model_config_text(ConfigTree const& model_config, Dtype dtype) {
  ConfigTree config = model_config;
  for (auto const* key : {"torch_dtype", "dtype"})
    if (config.contains(key) ||
        (std::string_view(key) == "dtype" && !config.contains("torch_dtype")))
      config.set(key, dtype == Dtype::fp32   ? "float32"
                      : dtype == Dtype::bf16 ? "bfloat16"
                                             : "float16");
  return config.dump(2) + "\n";
}

NamedTensors tensors_of(Manifest const& manifest) {
  NamedTensors out;
  for (auto const& tensor : manifest.tensors) {
    for (auto const& alias : tensor.aliases) out.aliases.push_back({alias, out.tensors.size()});
    out.tensors.push_back({tensor.name, tensor.shape});
  }
  return out;
}

WeightsOf weights_in(Manifest const& manifest) {
  if (manifest.frozen.contains("adapter_config")) return WeightsOf::adapter;
  TESSERA_VALIDATE(manifest.frozen.is_null(), DataError, manifest.directory.string(),
                   " has only the parameters that train; ",
                   manifest.frozen.get_int("parameters", 0),
                   " others are frozen, so that no model can be made of it: use the directory that "
                   "the run writes at its end, or give a file name for these tensors only");
  return WeightsOf::model;
}

std::vector<fs::path> write_config(fs::path const& directory, Manifest const& manifest,
                                   Dtype dtype) {
  if (weights_in(manifest) == WeightsOf::adapter) {
    fs::path const file = directory / adapter_config_name;
    write_file_atomically(file, manifest.frozen.at("adapter_config").dump(2) + "\n");
    return {file};
  }
  if (!manifest.model_config.is_object()) return {};
  fs::path const file = directory / "config.json";
  write_file_atomically(file, model_config_text(manifest.model_config, dtype));
  return {file};
}

std::vector<fs::path> write_model_directory(Manifest const& manifest, Dtype dtype) {
  constexpr std::int64_t max_shard_bytes = 5'000'000'000;
  auto const [tensors, aliases] = tensors_of(manifest);
  auto const writer = make_sharded_safetensors_writer(manifest.directory, tensors, aliases, dtype,
                                                      max_shard_bytes, weights_in(manifest));
  stream_state(manifest, manifest.state_index("fp32"), *writer, {});
  auto files = writer->finish();
  for (auto& file : write_config(manifest.directory, manifest, dtype))
    files.push_back(std::move(file));
  return files;
}

}  // namespace tessera::checkpoint::detail
