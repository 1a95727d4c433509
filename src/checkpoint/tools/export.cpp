// A checkpoint as a model directory that Hugging Face programs load.

#include "tessera/checkpoint/tools/export.hpp"

#include <algorithm>

#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr char const* tokenizer_files[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "tokenizer.model",
                                           "chat_template.jinja",
                                           "generation_config.json"};

/// The run directory is above checkpoints/step_<N>; DeepSpeed's save_dir above the tag.
void copy_tokenizer(fs::path const& checkpoint, fs::path const& output,
                    std::vector<fs::path>& files) {
  fs::path const absolute = fs::absolute(checkpoint).lexically_normal();
  std::error_code error;
  for (auto const& directory :
       {absolute.parent_path().parent_path(), absolute.parent_path(), absolute}) {
    if (!fs::exists(directory / "tokenizer.json", error) &&
        !fs::exists(directory / "vocab.json", error))
      continue;
    for (auto const* name : tokenizer_files) {
      fs::path const from = directory / name, to = output / name;
      if (!fs::is_regular_file(from, error) || fs::equivalent(from, to, error)) continue;
      copy_file_atomically(from, to);
      files.push_back(to);
    }
    return;
  }
}

}  // namespace

ExportReport export_model(ExportOptions const& options) {
  for (auto const* suffix : {".safetensors", ".bin", ".h5", ".hdf5"})
    TESSERA_VALIDATE(
        options.output.extension() != suffix, UsageError, options.output.string(),
        " looks like a file; export writes a directory: ", "use zero-to-fp32 for a single file");
  ConsolidateOptions consolidation;
  consolidation.checkpoint = options.checkpoint;
  consolidation.tag = options.tag;
  consolidation.output = options.output;
  consolidation.dtype = dtype_from_name(options.dtype);
  consolidation.max_shard_bytes = options.max_shard_bytes;
  consolidation.progress = options.progress;
  auto const done = consolidate(consolidation);
  ExportReport report{done.checkpoint,    done.step,    done.tensors, done.parameters,
                      done.bytes_written, done.seconds, done.files,   done.nonfinite};
  copy_tokenizer(done.checkpoint, options.output, report.files);
  return report;
}

}  // namespace tessera::checkpoint
