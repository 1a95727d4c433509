#include "tessera/train/model_export.hpp"

#include <string>
#include <system_error>

#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/log.hpp"

namespace tessera::train {
namespace fs = std::filesystem;
namespace {

void copy_files(std::vector<fs::path> const& files, fs::path const& directory) {
  for (auto const& file : files) {
    fs::path const copy = directory / file.filename();
    std::error_code failed;
    if (!fs::equivalent(file, copy, failed)) copy_file_atomically(file, copy);
  }
}

void write(ModelExport const& from) {
  checkpoint::ConsolidateOptions options;
  options.checkpoint = from.shards;
  options.output = from.output_dir;
  if (from.dtype) options.dtype = *from.dtype;
  auto const report = checkpoint::consolidate(options);
  if (!report.nonfinite.empty())
    log::warning(concat("values of the model in ", from.output_dir.string(),
                        " are beyond the range of ", name_of(options.dtype), ": ",
                        checkpoint::text_of(report.nonfinite)));
  copy_files(from.tokenizer_files, from.output_dir);
  log::info("wrote the model to " + from.output_dir.string() +
            " (config.json, safetensors, tokenizer)");
}

}  // namespace

void export_model(ModelExport const& options, comm::Collectives& comm) {
  std::string failure;
  if (comm.rank() == 0) {
    try {
      write(options);
    } catch (Error const& e) {
      failure = e.what();
    }
  }
  failure = comm::broadcast_bytes(comm, failure, 0);
  TESSERA_VALIDATE(failure.empty(), IoError, "the model could not be written: ", failure);
}

}  // namespace tessera::train
