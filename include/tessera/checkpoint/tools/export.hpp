#pragma once
/// A checkpoint as a Hugging Face model directory.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/checkpoint/format/nonfinite.hpp"
#include "tessera/checkpoint/format/progress.hpp"

namespace tessera::checkpoint {

struct ExportOptions {
  std::filesystem::path checkpoint;  ///< Tessera's or DeepSpeed's
  std::string tag = "";
  std::filesystem::path output = {};
  std::string dtype = "fp32";  ///< fp32, bf16 or fp16
  std::int64_t max_shard_bytes = 5'000'000'000;
  ProgressCall progress = {};  ///< bytes of elements read
};
struct ExportReport {
  std::filesystem::path checkpoint;
  std::int64_t step = 0, tensors = 0, parameters = 0, bytes_written = 0;
  double seconds = 0;
  std::vector<std::filesystem::path> files = {};
  std::vector<NonFinite> nonfinite = {};  ///< written values that are inf or NaN
};
/// A Hugging Face directory: weights as safetensors, config.json with their type, and the
/// tokenizer's files of the run directory.
ExportReport export_model(ExportOptions const& options);

}  // namespace tessera::checkpoint
