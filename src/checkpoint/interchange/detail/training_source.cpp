#include "interchange/detail/training_source.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>

#include "format/detail/json_reader.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::checkpoint::detail {

int FileSet::add(std::filesystem::path const& path) {
  paths_.push_back(path);
  files_.emplace_back();
  return static_cast<int>(paths_.size()) - 1;
}

File const& FileSet::open(int index) {
  auto& file = files_[static_cast<std::size_t>(index)];
  if (file.is_open()) return file;
  if (most_open_ == 0) {
    // leaves room for what else the process opens
    rlimit limit = {};
    bool const known = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    most_open_ = known ? std::clamp<std::size_t>(limit.rlim_cur, 64, 8192) / 2 : 4096;
  }
  if (open_ >= most_open_) {
    for (auto& other : files_) other = File();
    open_ = 0;
  }
  file = File::open_read(path(index));
  ++open_;
  return file;
}

void FlatRuns::add(int file, TensorLocation place) {
  std::int64_t const end = numel() + place.numel;
  runs_.push_back({file, std::move(place)});
  ends_.push_back(end);
}

void FlatRuns::read(FileSet& files, std::int64_t first, std::int64_t numel, float* out) const {
  auto run =
      static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
  for (; numel > 0; ++run) {
    TESSERA_EXPECT(run < runs_.size());
    auto const& place = runs_[run].place;
    std::int64_t const skip = first - (ends_[run] - place.numel),
                       count = std::min(numel, place.numel - skip);
    read_as_fp32(files.open(runs_[run].file), place, skip, count, out);
    first += count, numel -= count, out += count;
  }
}

void StateSource::read(FileSet& files, std::int64_t first, std::int64_t numel, float* out) const {
  if (!parts) {
    std::fill(out, out + numel, 0.0f);
    return;
  }
  while (numel > 0) {
    std::int64_t const inside = first % chunk, count = std::min(numel, chunk - inside);
    (*parts)[static_cast<std::size_t>(first / chunk)].read(files, offset + inside, count, out);
    first += count, numel -= count, out += count;
  }
}

StateSource whole(int file, TensorLocation const& place) {
  auto parts = std::make_shared<std::vector<FlatRuns>>(1);
  (*parts)[0].add(file, place);
  return {std::move(parts), 0, std::max<std::int64_t>(1, place.numel)};
}

std::vector<std::string> matching_states(std::vector<std::string> const& present) {
  auto const has = [](std::vector<std::string> const& list, std::string const& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  std::vector<std::string> best;
  for (auto const& info : optim::optimizers()) {
    std::vector<std::string> kept;
    for (auto const& name : info.states)
      if (has(present, name)) kept.push_back(name);
    if (kept.size() == present.size()) return kept;
    if (kept.size() == info.states.size() && kept.size() > best.size()) best = kept;
  }
  return best;
}

std::vector<std::string> state_names_in(PickleValue const& state, std::string const& instead) {
  std::vector<std::string> present;
  for (std::size_t i = 0; i < state.pairs(); ++i) {
    std::string const name = state.pair_key(i).as_text();
    // NAdam's counters follow from the step.
    bool const is_counter = name == "step" || name == "mu_product";
    auto const value = state.find(name);
    if (!is_counter && value && !value->is_none()) present.push_back(name);
  }
  if (present.empty()) return {};
  if (auto names = matching_states(present); !names.empty()) return names;
  std::string known;
  for (auto const& info : optim::optimizers())
    known += concat(known.empty() ? "" : ", ", info.algorithm);
  present.resize(std::min<std::size_t>(present.size(), 8));
  state.fail(concat("the optimizer's state has ", join(present), ", which is not the state of ",
                    known, "; ", instead));
}

std::int64_t steps_in(TorchFile const& file, PickleValue const& state) {
  auto const step = state.find("step");
  double const steps = step ? file.number(*step) : 0;
  if (!(steps >= 0 && steps < 9e15)) state.fail(concat("the optimizer's step is ", steps));
  return static_cast<std::int64_t>(steps);
}

bool keeps_no_state(TorchFile const& file, PickleValue const& group) {
  auto const momentum = group.find("momentum");
  return momentum && !group.find("betas") && !group.find("alpha") &&  // nor Adam, nor RMSprop
         file.number(*momentum) == 0.0;
}

namespace {

/// The head of GPT-NeoX in files of Hugging Face, and as transformers 5 calls it in memory, where
/// DeepSpeed finds it.
constexpr char const *head_in_files = "embed_out.weight", *head_in_memory = "lm_head.weight";

/// PEFT's prefix of parameters of a model, in an adapter's file.
constexpr std::string_view adapted_model = "base_model.model.";

}  // namespace

std::vector<std::string> possible_names(memory::ParameterSpec const& parameter) {
  std::vector<std::string> out;
  auto names = parameter.aliases;
  names.insert(names.begin(), parameter.name);
  if (parameter.name == head_in_files) names.emplace_back(head_in_memory);
  for (std::string const matrix :
       {".lora_A.", ".lora_B."})  // PEFT's name of the adapter, in memory
    if (auto const at = parameter.name.rfind(matrix); at != std::string::npos)
      names.push_back(std::string(parameter.name).insert(at + matrix.size(), "default."));
  if (parameter.name.ends_with(".lora_magnitude_vector"))
    names.push_back(parameter.name + ".default.weight");
  for (std::size_t i = 0, given = names.size(); i < given; ++i)  // modules that train in full
    if (names[i].starts_with(adapted_model)) names.push_back(names[i].substr(adapted_model.size()));
  for (auto const& name : names) {
    out.push_back(name);
    out.push_back("module." + name);
    for (std::string const prefix : {"transformer.", "model.", "gpt_neox."}) {
      if (name.rfind(prefix, 0) == 0) out.push_back(name.substr(prefix.size()));
      out.push_back(prefix + name);
    }
  }
  return out;
}

bool is_peft_adapter(std::string const& name) {
  return name.find("base_model.model.") != std::string::npos &&
         (name.find(".lora_A.") != std::string::npos || name.find(".lora_B.") != std::string::npos);
}

bool is_saved_constant(std::string const& name) {
  for (char const* end : {".attn.bias", ".attn.masked_bias", ".attention.bias",
                          ".attention.masked_bias", ".rotary_emb.inv_freq"})
    if (name.ends_with(end)) return true;
  return false;
}

}  // namespace tessera::checkpoint::detail
