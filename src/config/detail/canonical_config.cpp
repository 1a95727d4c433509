#include "detail/resolvers.hpp"

#include <algorithm>
#include <utility>

#include "tessera/config/option_table.hpp"
#include "tessera/config/option_values.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::config::detail {
namespace {

/// The section's type in the table's spelling, checked before its parameters: those of a refused
/// type are not known.
void canonicalize_type(ConfigTree& tree, std::string const& section, std::string const& source) {
  if (!tree.contains(section) || !tree.at(section).is_object()) return;
  std::string const name = section + ".type";
  Option const& option = *deepspeed_table().find(name);
  auto const* given = tree.at(section).find("type");
  TESSERA_VALIDATE(
      given && given->is_string(), ConfigError, source, ": the section '", section,
      "' needs a \"type\": one of ",
      ConfigTree(ConfigTree::Array(option.choices.begin(), option.choices.end())).dump());
  std::string type = given->as_string();
  if (section == "optimizer") {
    for (auto const& choice : option.choices)
      if (lower_case(choice) == lower_case(type)) type = choice;
    for (auto const& [refused, why] : option.exceptions)
      if (lower_case(refused) == lower_case(type)) type = refused;
  }
  checked_value(option, type, source + ": " + name, Audience::key);
  tree[section].set("type", type);
}

/// DeepSpeed's schedules take a list with one rate per parameter group.
void collapse_lists(ConfigTree& tree) {
  auto* const section = tree.contains("scheduler") ? &tree["scheduler"] : nullptr;
  if (!section || !section->is_object() || !section->contains("params")) return;
  ConfigTree& params = (*section)["params"];
  for (char const* name :
       {"warmup_min_lr", "warmup_max_lr", "cycle_min_lr", "cycle_max_lr", "lr_range_test_min_lr"}) {
    auto const* rates = params.find(name);
    if (!rates || !rates->is_array() || rates->size() == 0) continue;
    auto const& first = rates->as_array().front();
    if (first.is_number() &&
        std::ranges::all_of(rates->as_array(), [&](auto const& rate) { return rate == first; }))
      params.set(name, ConfigTree(first));
  }
}

/// cpu_offload and its relatives, as DeepSpeed translates them.
void translate_offload(ConfigTree& zero, CanonicalConfig& out, std::string const& source) {
  constexpr std::pair<char const*, char const*> old_names[] = {
      {"cpu_offload", "offload_optimizer"},
      {"cpu_offload_param", "offload_param"},
      {"cpu_offload_params", "offload_param"}};
  for (auto const& [name, block] : old_names) {
    auto const* given = zero.find(name);
    if (!given || !given->is_bool()) continue;
    TESSERA_VALIDATE(!zero.contains(block), ConfigError, source, ": zero_optimization.", name,
                     " is the old name of ", block, ", which is given too; remove ", name);
    bool const offloads = given->as_bool();
    zero.erase(name);
    if (offloads) zero.set(block, ConfigTree::object().set("device", "cpu"));
    out.notes.push_back(concat("zero_optimization.", name, ": deprecated; read as ", block,
                               offloads ? " {\"device\": \"cpu\"}" : " {\"device\": \"none\"}"));
  }
}

void translate_zero(CanonicalConfig& out, std::string const& source) {
  auto& tree = out.tree;
  auto const* zero = tree.find("zero_optimization");
  if (!zero) return;
  if (zero->is_bool()) {
    auto block = ConfigTree::object().set("stage", zero->as_bool() ? 1 : 0);
    if (auto const* size = tree.find("allgather_size")) {
      block.set("allgather_bucket_size", *size);
      tree.erase("allgather_size");
    }
    tree.set("zero_optimization", std::move(block));
    out.notes.emplace_back(
        "zero_optimization: true and false are deprecated; read as a block with stage 1 or 0");
    return;
  }
  if (!zero->is_object()) return;
  ConfigTree& block = tree["zero_optimization"];
  translate_offload(block, out, source);
  if (char const* old = "stage3_gather_fp16_weights_on_model_save"; block.contains(old))
    out.notes.push_back(concat("zero_optimization.", old,
                               ": deprecated; read as stage3_gather_16bit_weights_on_model_save"));
}

}  // namespace

CanonicalConfig canonical_config(ConfigTree tree, std::string const& source) {
  CanonicalConfig out{std::move(tree), {}};
  translate_zero(out, source);
  if (auto const* old = out.tree.find("bfloat16")) {
    TESSERA_VALIDATE(!out.tree.contains("bf16"), ConfigError, source,
                     ": bf16 and bfloat16 name the same block; remove one of them");
    out.tree.set("bf16", ConfigTree(*old));
    out.tree.erase("bfloat16");
  }
  // Accelerate writes infinity for "never"
  if (auto const* steps = out.tree.find("steps_per_print"); steps && steps->is_string())
    for (char const* endless : {"inf", ".inf", "infinity"})
      if (lower_case(steps->as_string()) == endless) {
        out.tree.set("steps_per_print", 0);
        break;
      }
  collapse_lists(out.tree);
  canonicalize_type(out.tree, "optimizer", source);
  canonicalize_type(out.tree, "scheduler", source);
  return out;
}

}  // namespace tessera::config::detail
