#include "checkpoint/merge_command.hpp"

#include <fmt/format.h>

#include <memory>

#include "checkpoint/consolidate_command.hpp"
#include "checkpoint/tables.hpp"
#include "tessera/checkpoint/interchange/model_weights.hpp"
#include "tessera/checkpoint/tools/merge.hpp"
#include "tessera/core/byte_size.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/model/families/registry.hpp"
#include "tessera/train/setup/adapter.hpp"
#include "tessera/train/setup/model_config.hpp"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

struct MergeArguments {
  std::string model, adapter, output, dtype = "fp32", max_shard_size = "5GB";
  checkpoint::WhenPresent when_present = checkpoint::WhenPresent::refuse;
};

void run_merge(MergeArguments const& a) {
  config::TrainingArguments arguments;
  arguments.model_name_or_path = a.model;
  arguments.adapter = a.adapter;
  auto const config = train::keep_stored_head(train::model_config(arguments), a.model);
  model::ModelOptions model_options = Dtype::fp32;
  model_options.lora = train::lora_options(arguments, config);
  auto const model = model::make_model(config, model_options);
  checkpoint::MergeOptions options{.model = a.model,
                                   .adapter_file = checkpoint::adapter_weights_file(a.adapter),
                                   .output = a.output,
                                   .units = model->units(),
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

void add_merge(CLI::App& app) {
  auto const a = std::make_shared<MergeArguments>();
  auto* command = app.add_subcommand(
      "merge", "Add a LoRA adapter to the weights of its model: a model directory without adapter");
  command->add_option("model_dir", a->model, "Hugging Face directory of the adapted model")
      ->required();
  command
      ->add_option("adapter_dir", a->adapter,
                   "Directory with adapter_config.json and adapter_model.safetensors or .bin")
      ->required();
  command->add_option("output_dir", a->output, "Directory for the merged model")->required();
  command->add_option("--dtype", a->dtype, "Data type: fp32, bf16 or fp16")->capture_default_str();
  command
      ->add_option("--max_shard_size", a->max_shard_size,
                   "Maximum size of a safetensors file, such as 5GB or 500MB")
      ->capture_default_str();
  command->add_flag_callback(
      "--overwrite", [a] { a->when_present = checkpoint::WhenPresent::replace; },
      "Replace a model that output_dir holds");
  command->callback([a] { run_merge(*a); });
}

}  // namespace tessera::cli
