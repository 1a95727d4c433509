#include "checkpoint/export_command.hpp"

#include <fmt/format.h>

#include <functional>
#include <memory>

#include "checkpoint/consolidate_command.hpp"
#include "checkpoint/tables.hpp"
#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/core/status_line.hpp"
#include "tessera/core/text.hpp"

namespace tessera::cli {
namespace {

struct ExportArguments {
  checkpoint::ExportOptions options;
  std::string checkpoint, output, max_shard_size = "5GB";
};

void run_export(ExportArguments& a) {
  a.options.checkpoint = a.checkpoint;
  a.options.output = a.output;
  a.options.max_shard_bytes = parse_size(a.max_shard_size);
  ByteProgress progress("export");
  a.options.progress = std::ref(progress);
  auto const r = checkpoint::export_model(a.options);
  progress.clear();
  print_replaced(r);
  fmt::print("{}: step {}, {}, {} as {}, {} written in {:.2f} s\n", r.checkpoint.string(), r.step,
             counted(r.tensors, "tensor"), counted(r.parameters, "parameter"), a.options.dtype,
             human_bytes(r.bytes_written), r.seconds);
  for (auto const& file : r.files) fmt::print("  {}\n", file.string());
  require_finite(r.nonfinite, a.output, dtype_from_name(a.options.dtype));
}

}  // namespace

void add_export(CLI::App& app) {
  auto const a = std::make_shared<ExportArguments>();
  auto* command = app.add_subcommand("export",
                                     "Convert a checkpoint to a Hugging Face model directory: "
                                     "config.json, safetensors, tokenizer");
  command
      ->add_option("checkpoint_dir", a->checkpoint,
                   "Run directory, checkpoints directory or checkpoint; or DeepSpeed's save_dir")
      ->required();
  command->add_option("output_dir", a->output, "Directory for the model")->required();
  command->add_option("-t,--tag", a->options.tag, "Checkpoint to use (default: the latest)");
  add_allow_older(*command, a->options.when_damaged);
  command->add_option("--dtype", a->options.dtype, "Data type: fp32, bf16 or fp16")
      ->capture_default_str();
  command
      ->add_option("--max_shard_size", a->max_shard_size,
                   "Maximum size of a safetensors file, such as 5GB or 500MB")
      ->capture_default_str();
  command->add_flag_callback(
      "--overwrite", [a] { a->options.when_present = checkpoint::WhenPresent::replace; },
      "Replace a model that output_dir holds");
  command->callback([a] { run_export(*a); });
}

}  // namespace tessera::cli
