#pragma once
/// A checkpoint as a Hugging Face model directory.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/format/progress.hpp"
#include "tessera/checkpoint/tools/consolidate.hpp"

namespace tessera::checkpoint {

struct ExportOptions {
  std::filesystem::path checkpoint;  ///< Tessera's or DeepSpeed's
  std::string tag = "";
  std::filesystem::path output = {};
  std::string dtype = "fp32";  ///< fp32, bf16 or fp16
  std::int64_t max_shard_bytes = 5'000'000'000;
  ProgressCall progress = {};                      ///< bytes of elements read
  WhenDamaged when_damaged = WhenDamaged::refuse;  ///< the latest, without a tag
  WhenPresent when_present = WhenPresent::refuse;
};
/// A Hugging Face directory: weights as safetensors, config.json with their type, the tokenizer's
/// files and generation_config.json.
ConsolidateReport export_model(ExportOptions const& options);

}  // namespace tessera::checkpoint
