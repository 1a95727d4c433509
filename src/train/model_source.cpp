#include "tessera/train/model_source.hpp"

#include "tessera/checkpoint/interchange/model_weights.hpp"
#include "tessera/core/error.hpp"
#include "tessera/model/initialize.hpp"
#include "tessera/topology/node_files.hpp"
#include "tessera/train/model_config.hpp"

namespace tessera::train {
namespace fs = std::filesystem;
namespace {

/// What save_pretrained() has noted; nothing for dtypes that Tessera does not know.
std::optional<Dtype> stored_dtype(ConfigTree const& config) {
  for (char const* key : {"dtype", "torch_dtype"}) {
    std::string const name = config.get_string(key, "");
    for (auto const& [known, dtype] :
         {std::pair("float32", Dtype::fp32), {"bfloat16", Dtype::bf16}, {"float16", Dtype::fp16}})
      if (name == known) return dtype;
  }
  return std::nullopt;
}

/// Of the first tensor of safetensors files.
std::optional<Dtype> dtype_in(ConfigTree const& layout) {
  auto const& tensors = layout.at("tensors").as_object();
  std::string const name = tensors.empty() ? "" : tensors.begin()->second.get_string("dtype", "");
  for (auto const& [known, dtype] :
       {std::pair("F32", Dtype::fp32), {"BF16", Dtype::bf16}, {"F16", Dtype::fp16}})
    if (name == known) return dtype;
  return std::nullopt;
}

}  // namespace

ModelSource find_model(config::TrainingArguments const& arguments, comm::Collectives& comm) {
  ModelSource source;
  source.config = ConfigTree::parse(
      comm::broadcast_from_root(comm, [&] { return model_config(arguments).dump(); }),
      "config.json");
  source.weights_directory = arguments.model_name_or_path;
  if (!arguments.model_name_or_path.empty())
    source.weights = {arguments.model_name_or_path.string(), stored_dtype(source.config)};
  source.tokenizer_directory =
      !arguments.tokenizer_name.empty() ? arguments.tokenizer_name : arguments.model_name_or_path;
  return source;
}

zero::Engine::Fill initial_weights(ModelSource& source, std::vector<memory::UnitSpec> const& units,
                                   std::uint64_t seed, topology::MpiSession const& session,
                                   comm::Collectives& comm) {
  if (source.weights_directory.empty())
    return [&units, seed](zero::UnitIndex u, int p, std::int64_t first, std::int64_t numel,
                          float* out) {
      model::initialize_parameter(units[position(u)].parameters[static_cast<std::size_t>(p)], seed,
                                  first, numel, out);
    };

  std::vector<fs::path> files;  // known where they are opened
  std::string const layout = comm::broadcast_from_root(comm, [&] {
    checkpoint::ModelWeights const found(source.weights_directory);
    found.require(units);
    return found.layout();
  });
  auto const parsed = ConfigTree::parse(layout, "layout of the weights");
  if (auto const stored = dtype_in(parsed)) source.weights.stored_dtype = stored;
  for (auto const& name : parsed.at("files").as_array()) files.emplace_back(name.as_string());
  auto opened = topology::open_on_node(session, files);
  comm::run_on_ranks(comm,
                     [&] { TESSERA_VALIDATE(opened.failure.empty(), IoError, opened.failure); });
  auto weights = std::make_shared<checkpoint::ModelWeights>(layout, opened.release());
  return [weights, &units](zero::UnitIndex u, int p, std::int64_t first, std::int64_t numel,
                           float* out) {
    weights->fill(units[position(u)].parameters[static_cast<std::size_t>(p)], first, numel, out);
  };
}

}  // namespace tessera::train
