#include "interchange/detail/model_directory.hpp"

#include <string_view>

#include "interchange/detail/state_stream.hpp"
#include "tessera/checkpoint/interchange/safetensors_writer.hpp"
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

fs::path write_model_config(fs::path const& directory, ConfigTree const& model_config,
                            Dtype dtype) {
  write_file_atomically(directory / "config.json", model_config_text(model_config, dtype));
  return directory / "config.json";
}

std::vector<fs::path> write_model_directory(Manifest const& manifest, Dtype dtype) {
  constexpr std::int64_t max_shard_bytes = 5'000'000'000;
  std::vector<TensorHeader> tensors;
  for (auto const& tensor : manifest.tensors) tensors.push_back({tensor.name, tensor.shape});
  auto const writer =
      make_sharded_safetensors_writer(manifest.directory, tensors, dtype, max_shard_bytes);
  stream_state(manifest, manifest.state_index("fp32"), *writer, {});
  auto files = writer->finish();
  if (manifest.model_config.is_object())
    files.push_back(write_model_config(manifest.directory, manifest.model_config, dtype));
  return files;
}

}  // namespace tessera::checkpoint::detail
