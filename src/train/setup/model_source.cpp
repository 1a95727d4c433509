#include "tessera/train/setup/model_source.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "tessera/checkpoint/interchange/model_weights.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/data/tokenizer/tokenizer.hpp"
#include "tessera/model/decoder/causal_lm.hpp"
#include "tessera/topology/node_files.hpp"
#include "tessera/train/setup/adapter.hpp"

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

/// Returns the dtype of the first tensor of safetensors files.
std::optional<Dtype> dtype_in(ConfigTree const& layout) {
  auto const& tensors = layout.at("tensors").as_object();
  std::string const name = tensors.empty() ? "" : tensors.begin()->second.get_string("dtype", "");
  for (auto const& [known, dtype] :
       {std::pair("F32", Dtype::fp32), {"BF16", Dtype::bf16}, {"F16", Dtype::fp16}})
    if (name == known) return dtype;
  return std::nullopt;
}

enum class Part { base, adapter };

/// Modules that train in full are in the files of both.
bool is_in(Part part, memory::ParameterSpec const& parameter) {
  return parameter.is_adapter == (part == Part::adapter) || model::is_saved_module(parameter);
}

std::vector<memory::UnitSpec> part_of(std::vector<memory::UnitSpec> units, Part part) {
  for (auto& unit : units)
    std::erase_if(unit.parameters, [part](auto const& p) { return !is_in(part, p); });
  return units;
}

/// Elements [first, first + numel) of a parameter.
using Values = std::function<void(memory::ParameterSpec const& spec, std::int64_t first,
                                  std::int64_t numel, float* out)>;

struct OpenedWeights {
  ConfigTree layout;
  std::shared_ptr<checkpoint::ModelWeights const> weights;
};

bool contains(std::vector<std::string> const& names, std::string const& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Without the parameters that the model adds to its family's and the files lack.
std::vector<memory::UnitSpec> stored_units(std::vector<memory::UnitSpec> units,
                                           checkpoint::ModelWeights const& files,
                                           model::ParameterChanges const& changes) {
  for (auto& unit : units)
    std::erase_if(unit.parameters,
                  [&](auto const& p) { return contains(changes.added, p.name) && !files.has(p); });
  return units;
}

struct WantedWeights {
  fs::path path;  ///< a model directory or a file
  Part part;
  std::vector<memory::UnitSpec> const& units;
  model::ParameterChanges changes{};
  std::int64_t stored_vocabulary = 0;  ///< as ModelSource has it
};

/// Rank 0 reads the headers.
OpenedWeights open_weights(WantedWeights const& wanted, topology::MpiSession const& session,
                           comm::Collectives& comm) {
  auto const units = part_of(wanted.units, wanted.part);
  std::string const layout = comm::broadcast_from_root(comm, [&] {
    checkpoint::ModelWeights const found(wanted.path);
    auto const unused = found.require(stored_units(units, found, wanted.changes),
                                      wanted.changes.removed, wanted.stored_vocabulary);
    TESSERA_VALIDATE(unused.empty() || wanted.part == Part::base, DataError, wanted.path.string(),
                     " has tensors that are no adapters of this model: ", unused,
                     "; if they are its embeddings, add them to it with `tessera merge` first");
    if (wanted.part == Part::adapter) found.require_copies(units);
    if (!unused.empty())
      log::warning(concat(wanted.path.string(), ": not in the model, and left out: ", unused));
    return found.layout();
  });
  OpenedWeights out{ConfigTree::parse(layout, "layout of the weights"), {}};
  std::vector<fs::path> files;
  for (auto const& name : out.layout.at("files").as_array()) files.emplace_back(name.as_string());
  auto opened = topology::open_on_node(session, files);
  comm::run_on_ranks(comm,
                     [&] { TESSERA_VALIDATE(opened.failure.empty(), IoError, opened.failure); });
  out.weights = std::make_shared<checkpoint::ModelWeights>(layout, opened.release());
  return out;
}

/// run_clm.py: model.resize_token_embeddings(len(tokenizer)) where the embedding has fewer rows.
void grow_vocabulary(ModelSource& source, comm::Collectives& comm) {
  std::int64_t const rows = std::stoll(comm::broadcast_from_root(comm, [&] {
    bool const pretrained = !source.weights_directory.empty() &&
                            checkpoint::has_model_weights(source.weights_directory);
    return std::to_string(pretrained ? rows_for_tokens(source.config, source.tokenizer_directory)
                                     : 0);
  }));
  if (rows == 0) return;
  source.stored_vocabulary = known_model(source.config)->vocabulary_size();
  source.config.set("vocab_size", rows);
  if (comm.rank() == 0)
    log::warning(concat("the tokenizer ", source.tokenizer_directory.string(), " has ", rows,
                        " tokens and the model ", source.stored_vocabulary,
                        " rows of embeddings: the model gets the missing ones, which start at the "
                        "mean of the others, and is written with vocab_size ",
                        rows));
}

}  // namespace

ModelSource find_model(config::TrainingArguments const& arguments, comm::Collectives& comm) {
  ModelSource source;
  source.config = ConfigTree::parse(
      comm::broadcast_from_root(
          comm,
          [&] {
            return keep_stored_head(model_config(arguments), arguments.model_name_or_path).dump();
          }),
      "config.json");
  std::string const adapter = comm::broadcast_from_root(comm, [&] {
    auto const lora = lora_options(arguments, source.config);
    return lora ? model::adapter_config(*lora, "").dump() : "";
  });
  if (!adapter.empty()) {
    source.lora = model::read_adapter_config(ConfigTree::parse(adapter, "adapter_config.json"));
    source.adapter_directory = arguments.adapter;
  }
  source.weights_directory = arguments.model_name_or_path;
  if (!arguments.model_name_or_path.empty())
    source.weights = {arguments.model_name_or_path.string(), stored_dtype(source.config)};
  source.tokenizer_directory =
      !arguments.tokenizer_name.empty() ? arguments.tokenizer_name : arguments.model_name_or_path;
  grow_vocabulary(source, comm);
  return source;
}

namespace {

using Rows = std::map<std::string, std::vector<float>>;  ///< by parameter

/// The mean row of each parameter of which the files have @p stored rows and the model more.
/// Collective.
Rows mean_rows(checkpoint::ModelWeights const& files, std::vector<memory::UnitSpec> const& units,
               std::int64_t stored, comm::Collectives& comm) {
  Rows out;
  for (auto const& unit : units)
    for (auto const& p : unit.parameters) {
      if (p.is_adapter || !files.lacks_rows(p, stored)) continue;
      auto const bytes = comm::broadcast_from_root(comm, [&] {
        auto const mean = files.mean_row(p);
        return std::string(reinterpret_cast<char const*>(mean.data()), mean.size() * sizeof(float));
      });
      auto& mean = out[p.name];
      mean.resize(bytes.size() / sizeof(float));
      std::memcpy(mean.data(), bytes.data(), bytes.size());
    }
  return out;
}

}  // namespace

zero::Engine::Fill initial_weights(ModelSource& source, std::vector<memory::UnitSpec> const& units,
                                   std::uint64_t seed, topology::MpiSession const& session,
                                   comm::Collectives& comm) {
  Values const random = [seed](memory::ParameterSpec const& spec, std::int64_t first,
                               std::int64_t numel, float* out) {
    model::initialize_parameter(spec, seed, first, numel, out);
  };
  Values base = random, adapter = random;
  if (auto const& directory = source.weights_directory; !directory.empty()) {
    auto const opened = open_weights(
        {directory, Part::base, units, source.changes, source.stored_vocabulary}, session, comm);
    if (auto const stored = dtype_in(opened.layout)) source.weights.stored_dtype = stored;
    base = [files = opened.weights, random,
            means = mean_rows(*opened.weights, units, source.stored_vocabulary, comm)](
               memory::ParameterSpec const& spec, std::int64_t first, std::int64_t numel,
               float* out) {
      if (auto const mean = means.find(spec.name); mean != means.end())
        files->fill_grown(spec, mean->second, first, numel, out);
      else if (files->has(spec))
        files->fill(spec, first, numel, out);
      else
        random(spec, first, numel, out);
    };
    for (auto const& unit : units)
      for (auto const& parameter : unit.parameters)
        if (comm.rank() == 0 && contains(source.changes.added, parameter.name) &&
            !opened.weights->has(parameter))
          log::info(concat(parameter.name, " is not in ", directory.string(),
                           "; it starts from random values"));
  }
  if (auto const& directory = source.adapter_directory; !directory.empty()) {
    auto const file = comm::broadcast_from_root(
        comm, [&] { return checkpoint::adapter_weights_file(directory).string(); });
    adapter = [files = open_weights({file, Part::adapter, units}, session, comm).weights](
                  memory::ParameterSpec const& spec, std::int64_t first, std::int64_t numel,
                  float* out) { files->fill(spec, first, numel, out); };
  }
  bool const has_adapter = !source.adapter_directory.empty();
  return [base, adapter, has_adapter, &units](zero::UnitIndex u, int p, std::int64_t first,
                                              std::int64_t numel, float* out) {
    auto const& spec = units[position(u)].parameters[static_cast<std::size_t>(p)];
    bool const is_stored = has_adapter && is_in(Part::adapter, spec);
    (spec.is_adapter || is_stored ? adapter : base)(spec, first, numel, out);
  };
}

}  // namespace tessera::train
