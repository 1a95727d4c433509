#include "interchange/detail/safetensors_layout.hpp"

#include <algorithm>
#include <cstdio>

#include "format/detail/file.hpp"
#include "format/detail/json_reader.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"

namespace tessera::checkpoint::detail {
namespace {

namespace fs = std::filesystem;

char const* safetensors_name(Dtype dtype) {
  return dtype == Dtype::fp32 ? "F32" : dtype == Dtype::bf16 ? "BF16" : "F16";
}

}  // namespace

std::string safetensors_header(std::vector<TensorHeader> const& tensors, std::size_t first,
                               std::size_t last, Dtype dtype,
                               std::map<std::string, std::string> const& metadata) {
  std::string json(1, '{');
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (auto const& [key, value] : metadata)
      json += concat(json.back() == '{' ? "" : ",", json_quote(key), ":", json_quote(value));
    json.push_back('}');
  }
  std::int64_t at = 0;
  for (std::size_t i = first; i < last; ++i) {
    std::int64_t const end = at + tensors[i].numel() * static_cast<std::int64_t>(size_of(dtype));
    json += concat(json.size() > 1 ? "," : "", json_quote(tensors[i].name), ":{\"dtype\":\"",
                   safetensors_name(dtype), "\",\"shape\":", list_text(tensors[i].shape),
                   ",\"data_offsets\":[", at, ",", end, "]}");
    at = end;
  }
  json.push_back('}');
  json.resize((json.size() + 8 + 63) / 64 * 64 - 8, ' ');
  std::string out;
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(json.size() >> (8 * i)));
  return out + json;
}

std::vector<TensorHeader> with_copies(std::vector<TensorHeader> tensors,
                                      std::vector<TensorAlias> const& aliases, WeightsOf what) {
  if (what == WeightsOf::adapter)
    for (auto const& alias : aliases)
      tensors.push_back({alias.name, std::vector(tensors[alias.tensor].shape)});
  return tensors;
}

SafetensorsLayout::SafetensorsLayout(std::vector<TensorHeader> tensors, Dtype dtype,
                                     std::int64_t max_bytes, std::string stem)
    : tensors_(std::move(tensors)), stem_(std::move(stem)) {
  std::vector<std::int64_t> sizes;
  std::int64_t filled = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    std::int64_t const bytes = tensors_[i].numel() * static_cast<std::int64_t>(size_of(dtype));
    if (filled > 0 && filled + bytes > max_bytes) {
      first_.push_back(i);
      filled = 0;
    }
    filled += bytes;
    sizes.push_back(bytes);
    data_bytes_ += bytes;
    parameters_ += tensors_[i].numel();
  }
  for (std::size_t file = 0; file < files(); ++file) {
    headers_.push_back(
        safetensors_header(tensors_, first(file), last(file), dtype, {{"format", "pt"}}));
    auto at = static_cast<std::int64_t>(headers_.back().size());
    for (std::size_t i = first(file); i < last(file); ++i) {
      locations_.push_back({file, at});
      at += sizes[i];
    }
    bytes_.push_back(at);
  }
}

std::string SafetensorsLayout::name(std::size_t file) const {
  if (files() == 1) return stem_ + ".safetensors";
  char text[64];
  std::snprintf(text, sizeof text, "-%05zu-of-%05zu.safetensors", file + 1, files());
  return stem_ + text;
}

bool SafetensorsLayout::is_weights(std::string const& file) const {
  return file == stem_ + ".safetensors" || file == index_name() ||
         (file.starts_with(stem_ + "-") && file.find("-of-") != std::string::npos &&
          file.ends_with(".safetensors"));
}

std::string SafetensorsLayout::index_text() const {
  std::map<std::string, std::string> weight_map;
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    weight_map[tensors_[i].name] = name(locations_[i].file);
  std::string out = concat("{\n  \"metadata\": {\n    \"total_parameters\": ", parameters_,
                           ",\n    \"total_size\": ", data_bytes_, "\n  },\n  \"weight_map\": {");
  char const* separator = "\n";
  for (auto const& [tensor, file] : weight_map) {
    out += concat(separator, "    ", json_quote(tensor), ": ", json_quote(file));
    separator = ",\n";
  }
  return out + "\n  }\n}\n";
}

std::vector<fs::path> publish_weights(fs::path const& directory, SafetensorsLayout const& layout,
                                      std::function<void(std::size_t)> const& publish) {
  std::vector<fs::path> written;
  std::error_code error;
  std::string const index_name = layout.index_name();
  if (layout.files() > 1 && fs::remove(directory / index_name, error)) flush_directory(directory);
  for (std::size_t file = 0; file < layout.files(); ++file) {
    publish(file);
    written.push_back(directory / layout.name(file));
  }
  if (layout.files() > 1) {
    write_file_atomically(directory / index_name, layout.index_text());
    written.push_back(directory / index_name);
  }
  // a loader might take the weights of an earlier model
  for (auto const& entry : entries_of(directory))
    if (layout.is_weights(entry.path().filename().string()) &&
        std::find(written.begin(), written.end(), entry.path()) == written.end())
      fs::remove(entry.path(), error);
  return written;
}

}  // namespace tessera::checkpoint::detail
