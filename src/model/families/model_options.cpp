#include "families/model_options.hpp"

#include "tessera/core/error.hpp"

namespace tessera::model::detail {
namespace {

/// Frequencies that depend on the length of a row.
void check_documents(DecoderDescription const& description) {
  if (!description.documents.reset_position_ids || !description.rotary) return;
  using enum kernels::RotaryScaling;
  auto const scaling = description.rotary->scaling;
  TESSERA_VALIDATE(scaling != dynamic && scaling != longrope, ConfigError, "rope_type ",
                   scaling == dynamic ? "dynamic" : "longrope",
                   " with reset_position_ids: its frequencies would depend on the longest document "
                   "of a micro-batch; leave reset_position_ids out");
}

void replace_head(DecoderDescription& description, HeadOptions const& head) {
  TESSERA_VALIDATE(head.outputs >= 1 && !head.name.empty(), ConfigError, "a head '", head.name,
                   "' with ", head.outputs, " outputs: it needs a name and at least one output");
  TESSERA_VALIDATE(!description.lora, ConfigError, "adapters with the head ", head.name,
                   " of one's own: adapters freeze it; leave use_peft_lora out");
  description.replaced_head = description.names.head;
  description.head_outputs = head.outputs;
  description.names.head = head.name;
  description.names.head_bias.clear();
  description.logit_cap = 0.0;
  description.tied = false;
}

std::string_view torch_name(Dtype dtype) {
  return dtype == Dtype::bf16 ? "bfloat16" : dtype == Dtype::fp16 ? "float16" : "float32";
}

}  // namespace

void apply_options(DecoderDescription& description, ModelOptions const& options) {
  Dtype const dtype = options.dtype;
  TESSERA_VALIDATE(dtype == Dtype::fp32 || dtype == Dtype::bf16 || dtype == Dtype::fp16,
                   ConfigError, "a model in ", name_of(dtype),
                   " is not supported; use fp32, bf16 or fp16");
  description.label_smoothing = options.label_smoothing;
  description.embedding.noise_alpha = options.neftune_noise_alpha;
  description.frozen = options.frozen_parameters;
  description.documents = options.documents;
  check_documents(description);
  if (options.head) replace_head(description, *options.head);
}

void write_options(ConfigTree& config, ModelOptions const& options, std::string_view architecture) {
  std::string const own = options.head ? options.head->architecture : "";
  if (std::string const name = own.empty() ? std::string(architecture) : own; !name.empty())
    config.set("architectures", ConfigTree::Array{name});
  if (options.head && !config.contains("id2label")) config.set("num_labels", options.head->outputs);
  config.erase("torch_dtype");
  config.set("dtype", torch_name(options.dtype));
}

}  // namespace tessera::model::detail
