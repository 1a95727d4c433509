#include "commands.hpp"

#include <fmt/format.h>

#include <functional>
#include <memory>

#include "checkpoint/tables.hpp"
#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/status_line.hpp"
#include "tessera/core/text.hpp"

namespace tessera::cli {
namespace {

struct ConsolidateArguments {
  checkpoint::ConsolidateOptions options;
  std::string checkpoint, output, tag, max_shard_size = "5GB", dtype = "fp32";
  bool safe_serialization = false, exclude_frozen_parameters = false, debug = false;
};

void consolidate(ConsolidateArguments& a) {
  a.options.checkpoint = a.checkpoint;
  a.options.output = a.output;
  a.options.tag = a.tag;
  a.options.max_shard_bytes = parse_size(a.max_shard_size);
  a.options.dtype = model_dtype(a.dtype);
  if (a.exclude_frozen_parameters) a.options.frozen = checkpoint::FrozenParameters::exclude;
  ByteProgress progress("consolidate");
  a.options.progress = std::ref(progress);
  auto const r = checkpoint::consolidate(a.options);
  progress.clear();
  print_replaced(r);
  if (a.debug)
    fmt::print("read {}: {}, {} of data\n", r.checkpoint.string(), r.format,
               human_bytes(r.bytes_read));
  fmt::print("{}: step {}, {}, {}, {} written in {:.2f} s\n", r.checkpoint.string(), r.step,
             counted(r.tensors, "tensor"), counted(r.parameters, "parameter"),
             human_bytes(r.bytes_written), r.seconds);
  for (auto const& file : r.files) fmt::print("  {}\n", file.string());
  require_finite(r.nonfinite, a.output, a.options.dtype);
}

}  // namespace

void require_finite(std::vector<checkpoint::NonFinite> const& found, std::string const& output,
                    Dtype dtype) {
  TESSERA_VALIDATE(found.empty(), DataError, output, " is written, but values in it are not finite",
                   dtype == Dtype::fp32 ? "" : concat(" or beyond the range of ", name_of(dtype)),
                   ": ", checkpoint::text_of(found),
                   "; use an older checkpoint (`tessera checkpoint ls`)");
}

void print_replaced(checkpoint::ConsolidateReport const& report) {
  for (auto const& name : report.leftovers)
    fmt::print("removed {}, an unfinished file of an earlier run\n", name);
  for (auto const& file : report.replaced)
    fmt::print("replaced {} of an earlier model\n", file.string());
}

Dtype model_dtype(std::string const& name) {
  for (auto const& [known, dtype] : {std::pair("fp32", Dtype::fp32),
                                     {"float32", Dtype::fp32},
                                     {"bf16", Dtype::bf16},
                                     {"bfloat16", Dtype::bf16},
                                     {"fp16", Dtype::fp16},
                                     {"float16", Dtype::fp16}})
    if (name == known) return dtype;
  throw UsageError(concat("--dtype is '", name, "'; give fp32, bf16 or fp16"));
}

void add_consolidate(Command& app) {
  auto const a = std::make_shared<ConsolidateArguments>();
  app.add("checkpoint_dir DIR", a->checkpoint,
          "run directory, checkpoints directory or checkpoint; or DeepSpeed's save_dir or "
          "one of its tags")
      .required();
  app.add("output PATH", a->output,
          "output: FILE.safetensors, FILE.bin, FILE.pt, FILE.h5, or a directory (Hugging Face "
          "model)")
      .required();
  app.add("-t,--tag TAG", a->tag, "checkpoint to use: step_00000100 or 100 (default: the latest)");
  add_allow_older(app, a->options.when_damaged);
  app.add("--max_shard_size SIZE", a->max_shard_size,
          "maximum file size in an output directory, such as 5GB or 500MB");
  add_dtype(app, a->dtype);
  app.add("--safe_serialization", a->safe_serialization,
          "no effect: directories are always written as safetensors");
  app.add("--exclude_frozen_parameters", a->exclude_frozen_parameters,
          "leave out parameters that the DeepSpeed run did not train");
  app.add("-d,--debug", a->debug, "print what was read");
  app.run([a] { consolidate(*a); });
}

}  // namespace tessera::cli
