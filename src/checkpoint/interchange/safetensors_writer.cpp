#include "tessera/checkpoint/interchange/safetensors_writer.hpp"

#include <algorithm>
#include <cstdio>
#include <set>

#include "format/detail/text.hpp"
#include "interchange/detail/stream_writer.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;
using Metadata = std::map<std::string, std::string>;

char const* safetensors_name(Dtype dtype) {
  return dtype == Dtype::fp32 ? "F32" : dtype == Dtype::bf16 ? "BF16" : "F16";
}

/// u64 length and JSON, padded with blanks so that the data starts at a multiple of 64 bytes.
std::string header_of(std::vector<TensorHeader> const& tensors, std::size_t first, std::size_t last,
                      Dtype dtype, Metadata const& metadata) {
  std::string json(1, '{');
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (auto const& [key, value] : metadata)
      json += concat(json.back() == '{' ? "" : ",", detail::json_quote(key), ":",
                     detail::json_quote(value));
    json.push_back('}');
  }
  std::int64_t at = 0;
  for (std::size_t i = first; i < last; ++i) {
    std::int64_t const end = at + tensors[i].numel() * static_cast<std::int64_t>(size_of(dtype));
    json +=
        concat(json.size() > 1 ? "," : "", detail::json_quote(tensors[i].name), ":{\"dtype\":\"",
               safetensors_name(dtype), "\",\"shape\":", detail::list_text(tensors[i].shape),
               ",\"data_offsets\":[", at, ",", end, "]}");
    at = end;
  }
  json.push_back('}');
  json.resize((json.size() + 8 + 63) / 64 * 64 - 8, ' ');
  std::string out;
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(json.size() >> (8 * i)));
  return out + json;
}

class SingleWriter final : public detail::StreamWriter {
 public:
  SingleWriter(fs::path const& path, std::vector<TensorHeader> const& tensors, Dtype dtype,
               Metadata const& metadata)
      : StreamWriter(tensors, dtype), file_(path, bytes_of(0, tensors.size())) {
    file_.write(header_of(tensors, 0, tensors.size(), dtype, metadata));
  }
  std::vector<fs::path> finish() override {
    require_complete();
    file_.flush();
    file_.pending().commit();
    return {file_.pending().final_path()};
  }

 private:
  void put(void const* data, std::int64_t bytes) override { file_.write(data, bytes); }
  detail::SequentialFile file_;
};

/// First tensor of each shard, in order: a shard is filled until the next tensor would make it
/// larger than allowed.
std::vector<std::size_t> plan_shards(std::vector<TensorHeader> const& tensors, Dtype dtype,
                                     std::int64_t max_bytes) {
  std::vector<std::size_t> first{0};
  std::int64_t filled = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::int64_t const bytes = tensors[i].numel() * static_cast<std::int64_t>(size_of(dtype));
    if (filled > 0 && filled + bytes > max_bytes) {
      first.push_back(i);
      filled = 0;
    }
    filled += bytes;
  }
  return first;
}

class ShardedWriter final : public detail::StreamWriter {
 public:
  ShardedWriter(fs::path directory, std::vector<TensorHeader> const& tensors, Dtype dtype,
                std::int64_t max_bytes)
      : StreamWriter(tensors, dtype),
        directory_(std::move(directory)),
        first_(plan_shards(tensors, dtype, max_bytes)) {}

  std::vector<fs::path> finish() override {
    require_complete();
    std::vector<fs::path> written;
    if (first_.size() > 1) remove_index();
    for (auto& file : files_) {
      file->pending().publish();
      written.push_back(file->pending().final_path());
    }
    if (first_.size() > 1) {
      write_file_atomically(directory_ / "model.safetensors.index.json", index_text());
      written.push_back(directory_ / "model.safetensors.index.json");
    }
    remove_others(written);
    return written;
  }

 private:
  std::string name(std::size_t shard) const {
    if (first_.size() == 1) return "model.safetensors";
    char text[64];
    std::snprintf(text, sizeof text, "model-%05zu-of-%05zu.safetensors", shard + 1, first_.size());
    return text;
  }

  void begin(std::size_t tensor) override {
    std::size_t const shard = files_.size();
    if (shard >= first_.size() || tensor != first_[shard]) return;
    std::size_t const last = shard + 1 < first_.size() ? first_[shard + 1] : tensors().size();
    files_.push_back(
        std::make_unique<detail::SequentialFile>(directory_ / name(shard), bytes_of(tensor, last)));
    files_.back()->write(header_of(tensors(), tensor, last, dtype(), {{"format", "pt"}}));
  }
  void put(void const* data, std::int64_t bytes) override { files_.back()->write(data, bytes); }
  void end(std::size_t tensor) override {
    bool const last = files_.size() < first_.size() ? tensor + 1 == first_[files_.size()]
                                                    : tensor + 1 == tensors().size();
    if (!last) return;
    files_.back()->flush();
    files_.back()->pending().seal();
  }

  /// Shards of two models under the index of one would be half a model: between here and the new
  /// index there is none.
  void remove_index() {
    std::error_code error;
    if (fs::remove(directory_ / "model.safetensors.index.json", error))
      detail::flush_directory(directory_);
  }

  /// The weights of an earlier model must not stay next to the new ones: a loader might take them.
  void remove_others(std::vector<fs::path> const& written) {
    for (auto const& entry : fs::directory_iterator(directory_)) {
      std::string const file = entry.path().filename().string();
      bool const weights =
          file == "model.safetensors" || file == "model.safetensors.index.json" ||
          (file.rfind("model-", 0) == 0 && file.find("-of-") != std::string::npos &&
           entry.path().extension() == ".safetensors");
      std::error_code ignored;
      if (weights && std::find(written.begin(), written.end(), directory_ / file) == written.end())
        fs::remove(entry.path(), ignored);
    }
  }

  std::string index_text() const {
    std::map<std::string, std::string> weight_map;
    std::int64_t bytes = 0, parameters = 0;
    for (std::size_t shard = 0, i = 0; i < tensors().size(); ++i) {
      if (shard + 1 < first_.size() && i == first_[shard + 1]) ++shard;
      weight_map[tensors()[i].name] = name(shard);
      bytes += bytes_of(i);
      parameters += tensors()[i].numel();
    }
    std::string out = concat("{\n  \"metadata\": {\n    \"total_parameters\": ", parameters,
                             ",\n    \"total_size\": ", bytes, "\n  },\n  \"weight_map\": {");
    char const* separator = "\n";
    for (auto const& [tensor, file] : weight_map) {
      out += concat(separator, "    ", detail::json_quote(tensor), ": ", detail::json_quote(file));
      separator = ",\n";
    }
    return out + "\n  }\n}\n";
  }

  fs::path directory_;
  std::vector<std::size_t> first_;
  std::vector<std::unique_ptr<detail::SequentialFile>> files_;
};

}  // namespace

std::unique_ptr<TensorWriter> make_safetensors_writer(fs::path const& file,
                                                      std::vector<TensorHeader> const& tensors,
                                                      Dtype dtype, Metadata const& metadata) {
  return std::make_unique<SingleWriter>(file, tensors, dtype, metadata);
}

std::unique_ptr<TensorWriter> make_sharded_safetensors_writer(
    fs::path const& directory, std::vector<TensorHeader> const& tensors, Dtype dtype,
    std::int64_t max_shard_bytes) {
  detail::make_directories(directory);
  return std::make_unique<ShardedWriter>(directory, tensors, dtype, max_shard_bytes);
}

}  // namespace tessera::checkpoint
