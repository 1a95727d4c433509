// A checkpoint as a model directory that Hugging Face programs load.

#include "tessera/checkpoint/tools/export.hpp"

#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/core/error.hpp"
#include "tools/detail/model_output.hpp"

namespace tessera::checkpoint {
ConsolidateReport export_model(ExportOptions const& options) {
  TESSERA_VALIDATE(detail::output_format(options.output) == detail::OutputFormat::directory,
                   UsageError, options.output.string(),
                   " looks like a file; export writes a directory: use zero-to-fp32 for a single "
                   "file");
  ConsolidateOptions consolidation;
  consolidation.checkpoint = options.checkpoint;
  consolidation.tag = options.tag;
  consolidation.output = options.output;
  consolidation.dtype = dtype_from_name(options.dtype);
  consolidation.max_shard_bytes = options.max_shard_bytes;
  consolidation.progress = options.progress;
  consolidation.when_damaged = options.when_damaged;
  consolidation.when_present = options.when_present;
  return consolidate(consolidation);
}

}  // namespace tessera::checkpoint
