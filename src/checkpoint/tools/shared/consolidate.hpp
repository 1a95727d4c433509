#pragma once
/// A checkpoint's shards as one model: zero-to-fp32, and the trained model at the end of a run.
/// Streaming: memory does not grow with the model (a few fixed buffers and the manifest).

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/format/nonfinite.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera::checkpoint {

/// Parameters that a DeepSpeed run did not train.
enum class FrozenParameters { keep, exclude };

/// What to do when the output holds a model already.
enum class WhenPresent { replace, refuse };

struct ConsolidateOptions {
  /// Run directory, checkpoints directory or one checkpoint; or DeepSpeed's save_dir or one of its
  /// tags (docs/how-to/import-from-deepspeed.md).
  std::filesystem::path checkpoint;
  std::string tag = "";  ///< "step_00000100" or "100", or DeepSpeed's; empty: the latest
  /// The suffix chooses the format: .safetensors; .bin, .pt, .pth (torch); .h5, .hdf5; else a
  /// directory that gets a Hugging Face model (config.json, safetensors, tokenizer,
  /// generation_config.json).
  std::filesystem::path output = {};
  std::int64_t max_shard_bytes = 5'000'000'000;  ///< largest size of a file in an output directory
  Dtype dtype = Dtype::fp32;                     ///< fp32, bf16 or fp16
  FrozenParameters frozen = FrozenParameters::keep;
  std::string state = "fp32";  ///< which state to write; "exp_avg" for the first moment
  ProgressCall progress = {};  ///< bytes of elements read
  WhenDamaged when_damaged = WhenDamaged::refuse;  ///< the latest, without a tag
  WhenPresent when_present = WhenPresent::replace;
};

struct ConsolidateReport {
  std::filesystem::path checkpoint;  ///< that was read
  std::string format;                ///< "Tessera", "DeepSpeed ZeRO stage 2 of 4 ranks"
  std::int64_t step = 0;
  std::int64_t tensors = 0, parameters = 0;
  std::int64_t bytes_read = 0, bytes_written = 0;
  double seconds = 0;
  std::vector<std::filesystem::path> files;     ///< written
  std::vector<std::filesystem::path> replaced;  ///< files of an earlier model in the output
  std::vector<NonFinite> nonfinite;    ///< written values that are inf or NaN; not of buffers
  std::vector<std::string> leftovers;  ///< unfinished files of killed runs that were removed first
};

/// Every chunk is checked against its checksum before it is written. Output appears under its final
/// names when it is complete.
/// @throws IoError (no checkpoint, missing file, write failed), DataError naming file and tensor
/// (damage), ConfigError (dtype)
ConsolidateReport consolidate(ConsolidateOptions const& options);

/// A checkpoint as a Hugging Face model directory.
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
