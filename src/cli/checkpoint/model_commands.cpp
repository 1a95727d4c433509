#include "commands.hpp"

#include <fmt/format.h>

#include <functional>
#include <memory>

#include "checkpoint/tables.hpp"
#include "tessera/checkpoint/interchange/model_weights.hpp"
#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/checkpoint/tools/import.hpp"
#include "tessera/checkpoint/tools/merge.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/status_line.hpp"
#include "tessera/core/text.hpp"
#include "tessera/model/families/registry.hpp"
#include "tessera/train/report/version.hpp"
#include "tessera/train/setup/adapter.hpp"
#include "tessera/train/setup/model_source.hpp"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

struct ImportArguments {
  std::string source, checkpoints, config, tag, max_shard_size = "4GiB";
  checkpoint::WhenDamaged when_damaged = checkpoint::WhenDamaged::refuse;
  bool no_crc = false;
};

ConfigTree read_config(ImportArguments const& a) {
  if (!a.config.empty())
    return ConfigTree::read(fs::is_directory(a.config) ? fs::path(a.config) / "config.json"
                                                       : fs::path(a.config));
  TESSERA_VALIDATE(fs::is_directory(a.source), IoError, a.source,
                   " is not a directory; give DeepSpeed's save_dir, one of its tags, or a Hugging "
                   "Face model directory");
  auto const found = checkpoint::find_model_config(a.source);
  TESSERA_VALIDATE(found, IoError, "no config.json in or next to ", a.source,
                   "; give the Hugging Face model directory with --config DIR");
  return ConfigTree::read(*found);
}

void run_import(ImportArguments const& a) {
  checkpoint::ImportOptions options;
  options.source = a.source;
  options.tag = a.tag;
  options.when_damaged = a.when_damaged;
  options.checkpoints = a.checkpoints;
  options.max_shard_bytes = parse_size(a.max_shard_size);
  options.integrity = a.no_crc ? checkpoint::Integrity::trust : checkpoint::Integrity::check;
  options.versions = train::build_versions();
  checkpoint::check_source(a.source);  // an adapter has no config.json to ask for
  auto const model =
      model::make_model(train::keep_stored_head(read_config(a), a.source), Dtype::fp32);
  options.model_config = model->config();
  options.units = model->units();
  ByteProgress progress("import");
  options.progress = std::ref(progress);
  auto const r = checkpoint::import_checkpoint(options);
  progress.clear();
  fmt::print("{}: {}, step {}, {}, {}{}, {} written in {:.2f} s\n  {}\n", r.source.string(),
             r.format, r.step, counted(r.tensors, "tensor"), counted(r.parameters, "parameter"),
             r.has_optimizer_states ? fmt::format(", optimizer step {}", r.optimizer_steps) : "",
             human_bytes(r.bytes), r.seconds, r.checkpoint.string());
  if (!r.nonfinite.empty())
    log::warning(concat("values of ", r.source.string(),
                        " are not finite: ", checkpoint::text_of(r.nonfinite)));
  for (auto const& note : r.notes) fmt::print("  note: {}\n", note);
}

}  // namespace

void add_import(Command& app) {
  auto const a = std::make_shared<ImportArguments>();
  auto& command = app.add_command(
      "import",
      "Convert a DeepSpeed checkpoint or a Hugging Face model to a checkpoint for tessera-train");
  command
      .add("source DIR", a->source,
           "DeepSpeed's save_dir or one of its tags (any ZeRO stage, or universal), a "
           "Hugging Face model directory, or a checkpoint of its Trainer")
      .required();
  command
      .add("checkpoint_dir DIR", a->checkpoints,
           "directory for step_<N> and latest: OUTPUT_DIR/checkpoints, or the value of "
           "--resume_from_checkpoint")
      .required();
  command.add("--config PATH", a->config,
              "config.json or its directory (default: in or next to the source)");
  command.add("-t,--tag TAG", a->tag, "tag of the DeepSpeed checkpoint (default: the latest)");
  add_allow_older(command, a->when_damaged);
  command.add("--max_shard_size SIZE", a->max_shard_size, "approximate size of a shard file");
  command.add("--no_crc", a->no_crc, "check the CRC-32 of pickles only, not of all data");
  command.run([a] { run_import(*a); });
}

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

void add_export(Command& app) {
  auto const a = std::make_shared<ExportArguments>();
  auto& command = app.add_command("export",
                                  "Convert a checkpoint to a Hugging Face model directory: "
                                  "config.json, safetensors, tokenizer");
  command
      .add("checkpoint_dir DIR", a->checkpoint,
           "run directory, checkpoints directory or checkpoint; or DeepSpeed's save_dir")
      .required();
  command.add("output_dir DIR", a->output, "directory for the model").required();
  command.add("-t,--tag TAG", a->options.tag, "checkpoint to use (default: the latest)");
  add_allow_older(command, a->options.when_damaged);
  add_dtype(command, a->options.dtype);
  command.add("--max_shard_size SIZE", a->max_shard_size,
              "maximum size of a safetensors file, such as 5GB or 500MB");
  command.add_flag("--overwrite", "replace a model that output_dir holds",
                   [a] { a->options.when_present = checkpoint::WhenPresent::replace; });
  command.run([a] { run_export(*a); });
}

namespace {

struct MergeArguments {
  std::string model, adapter, output, dtype = "fp32", max_shard_size = "5GB";
  checkpoint::WhenPresent when_present = checkpoint::WhenPresent::refuse;
};

/// Sets the vocabulary of the model that the adapter was trained on: the rows that PEFT saved with
/// the adapter, else those that a run adds for the tokens of its tokenizer.
/// @return the rows in the model's files where these are fewer, else 0
std::int64_t grow_vocabulary(ConfigTree& config, MergeArguments const& a,
                             model::ModelOptions const& options, fs::path const& adapter_file) {
  auto const model = model::make_model(config, options);
  std::int64_t const stored = model->vocabulary_size();
  std::int64_t rows = checkpoint::saved_vocabulary(adapter_file, model->units(), stored);
  if (rows == 0) {
    fs::path const tokenizer = checkpoint::has_vocabulary(a.adapter) ? a.adapter : a.model;
    rows = train::rows_for_tokens(config, tokenizer);
    if (rows > 0)
      log::warning(concat("the tokenizer ", tokenizer.string(), " has ", rows,
                          " tokens and the model ", stored,
                          " rows of embeddings: the merged model gets the missing ones, which are "
                          "the mean of the others, as in the run that trained the adapter"));
  }
  if (rows > 0) config.set("vocab_size", rows);
  return rows > stored ? stored : 0;
}

void run_merge(MergeArguments const& a) {
  config::TrainingArguments arguments;
  arguments.model_name_or_path = a.model;
  arguments.adapter = a.adapter;
  auto config = train::keep_stored_head(train::model_config(arguments), a.model);
  model::ModelOptions model_options = Dtype::fp32;
  model_options.lora = train::lora_options(arguments, config);
  auto const adapter_file = checkpoint::adapter_weights_file(a.adapter);
  std::int64_t const stored = grow_vocabulary(config, a, model_options, adapter_file);
  auto const model = model::make_model(config, model_options);
  checkpoint::MergeOptions options{.model = a.model,
                                   .adapter_file = adapter_file,
                                   .output = a.output,
                                   .units = model->units(),
                                   .stored_vocabulary = stored,
                                   .scale = model_options.lora->scale(),
                                   .layout = model_options.lora->transposed
                                                 ? checkpoint::AdaptedLayout::in_out
                                                 : checkpoint::AdaptedLayout::out_in,
                                   .model_config = model->config(),
                                   .dtype = model_dtype(a.dtype),
                                   .max_shard_bytes = parse_size(a.max_shard_size),
                                   .when_present = a.when_present};
  auto const r = checkpoint::merge_adapter(options);
  fmt::print("{}: {} with {} changed by adapters of {}\n", a.output, counted(r.tensors, "tensor"),
             with_commas(r.adapted), a.adapter);
  for (auto const& file : r.files) fmt::print("  {}\n", file.string());
}

}  // namespace

void add_merge(Command& app) {
  auto const a = std::make_shared<MergeArguments>();
  auto& command = app.add_command(
      "merge", "Add a LoRA adapter to the weights of its model: a model directory without adapter");
  command.add("model_dir DIR", a->model, "Hugging Face directory of the adapted model").required();
  command
      .add("adapter_dir DIR", a->adapter,
           "directory with adapter_config.json and adapter_model.safetensors or .bin")
      .required();
  command.add("output_dir DIR", a->output, "directory for the merged model").required();
  add_dtype(command, a->dtype);
  command.add("--max_shard_size SIZE", a->max_shard_size,
              "maximum size of a safetensors file, such as 5GB or 500MB");
  command.add_flag("--overwrite", "replace a model that output_dir holds",
                   [a] { a->when_present = checkpoint::WhenPresent::replace; });
  command.run([a] { run_merge(*a); });
}

}  // namespace tessera::cli
