#include "tessera/train/setup/resume_changes.hpp"

#include <algorithm>
#include <set>
#include <string_view>

#include "tessera/config/resolved_config.hpp"
#include "tessera/core/error.hpp"

namespace tessera::train {
namespace {

/// Members of config.json, by family: the probability of dropout in attention.
constexpr char const* attention_dropouts[] = {"attn_pdrop", "attention_dropout"};

/// Members of config.json that say nothing about the model's computation.
std::set<std::string_view> const model_labels{
    "_name_or_path", "architectures", "dtype", "torch_dtype", "use_cache", "transformers_version"};

std::string shown(ConfigTree const& value) {
  if (value.is_null()) return "none";
  return value.is_string() ? value.as_string() : value.dump();
}

std::string was_is(std::string_view name, ConfigTree const& was, ConfigTree const& is) {
  return concat(name, " was ", shown(was), ", is ", shown(is));
}

/// Numbers as a file has them: 1.0 and 1 are different in memory.
bool same(ConfigTree const& saved, ConfigTree const& now) {
  if (saved.is_number() && now.is_number()) return saved.as_double() == now.as_double();
  return saved == now || saved.dump() == now.dump();
}

ConfigTree const* member(ConfigTree const& tree, std::string_view block, std::string_view name) {
  auto const* found = tree.find(block);
  auto const* entry = found ? found->find(name) : nullptr;
  return entry ? entry->find("value") : nullptr;
}

/// cuDNN's attention draws other masks than the portable kernel.
bool drops_attention(ConfigTree const& model_config) {
  return std::any_of(std::begin(attention_dropouts), std::end(attention_dropouts),
                     [&](char const* name) {
                       return model_config.is_object() && model_config.get_double(name, 0.0) > 0.0;
                     });
}

/// The texts of values in @p block that both sides have, by @p of(name): null: not compared.
template <class ListOf>
void compare_block(RunDescription const& saved, RunDescription const& now, std::string_view block,
                   ListOf const& of) {
  auto const* all = now.resolved_config.find(block);
  if (!all || !all->is_object()) return;
  for (auto const& [name, entry] : all->as_object()) {
    std::vector<std::string>* const list = of(name);
    auto const* was = member(saved.resolved_config, block, name);
    auto const* is = member(now.resolved_config, block, name);
    if (list && was && is && !same(*was, *is)) list->push_back(was_is(name, *was, *is));
  }
}

/// Compares trainer_state.data: the samples of a step.
class DataComparison {
 public:
  DataComparison(ConfigTree const& saved, ConfigTree const& now) : saved_(saved), now_(now) {}

  std::vector<std::string> training_data() {
    file("train_file");
    value("train_file_part", "the part of train_file");
    for (char const* name :
         {"block_size", "keep_linebreaks", "data_mixture", "skip_broken_records", "append_eos"})
      value(name, name);
    file("tokenizer");
    if (texts_.empty()) value("examples_xxh3", "the examples");
    if (texts_.empty()) value("samples", "the number of sequences");
    value("order", "train_sampling_strategy");
    if (differs("seed") && order(now_) != "sequential") value("seed", "data_seed");
    return std::move(texts_);
  }
  std::vector<std::string> evaluation_data() {
    file("validation_file");
    return std::move(texts_);
  }

 private:
  /// Returns the order as --train_sampling_strategy names it. Checkpoints of earlier versions say
  /// "random" for Philox's order.
  static std::string order(ConfigTree const& data) {
    auto const* given = data.find("order");
    std::string const name = given && given->is_string() ? given->as_string() : "";
    return name == "random" ? "philox" : name == "randperm" ? "random" : name;
  }
  bool differs(char const* name) const {
    if (std::string_view(name) == "order") return order(saved_) != order(now_);
    auto const *was = saved_.find(name), *is = now_.find(name);
    return was && is && !same(*was, *is);
  }
  void value(char const* name, char const* option) {
    if (!saved_.contains(name) || !now_.contains(name) || !differs(name)) return;
    if (std::string_view(name) == "order")
      texts_.push_back(was_is(option, order(saved_), order(now_)));
    else
      texts_.push_back(was_is(option, saved_.at(name), now_.at(name)));
  }
  /// A file counts as the same wherever it is, if its bytes are.
  void file(std::string const& name) {
    std::string const identity = name + "_xxh3";
    if (!differs(identity.c_str())) return;
    auto const *was = saved_.find(name), *is = now_.find(name);
    if (was && is && !same(*was, *is))
      texts_.push_back(was_is(name, *was, *is));
    else
      texts_.push_back(concat("the content of ", name, is ? " " + shown(*is) : "",
                              " has changed (XXH3 was ", shown(saved_.at(identity)), ", is ",
                              shown(now_.at(identity)), ")"));
  }

  ConfigTree const &saved_, &now_;
  std::vector<std::string> texts_;
};

}  // namespace

std::vector<std::string> compare_models(ConfigTree const& saved, ConfigTree const& now) {
  std::vector<std::string> texts;
  if (!saved.is_object() || !now.is_object()) return texts;
  for (auto const& [name, value] : now.as_object())
    if (auto const* was = saved.find(name);
        was && !model_labels.contains(name) && !same(*was, value))
      texts.push_back(was_is(name, *was, value));
  return texts;
}

ResumeChanges compare(RunDescription const& saved, RunDescription const& now) {
  ResumeChanges changes;
  changes.data = DataComparison(saved.data, now.data).training_data();
  auto const list_of = [&](config::Resume resume) -> std::vector<std::string>* {
    bool const trains =
        resume == config::Resume::training ||
        (resume == config::Resume::attention_dropout && drops_attention(now.model_config));
    if (resume == config::Resume::described) return nullptr;
    return trains ? &changes.training : &changes.other;
  };
  compare_block(saved, now, "engine",
                [&](auto name) { return list_of(config::resume_of_resolved(name)); });
  if (saved.total_steps > 0 && now.total_steps > 0 && saved.total_steps != now.total_steps)
    changes.training.push_back(was_is("total_steps", saved.total_steps, now.total_steps));
  auto const append = [&](std::vector<std::string> const& texts) {
    changes.training.insert(changes.training.end(), texts.begin(), texts.end());
  };
  append(compare_models(saved.model_config, now.model_config));
  append(DataComparison(saved.data, now.data).evaluation_data());
  compare_block(saved, now, "arguments",
                [&](auto name) { return list_of(config::resume_of_argument(name)); });
  return changes;
}

}  // namespace tessera::train
