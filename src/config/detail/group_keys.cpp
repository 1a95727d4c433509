#include "detail/group_keys.hpp"

#include "detail/deepspeed_zero.hpp"
#include "detail/quantization_keys.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config::detail {
namespace {

constexpr char const* shard_size = "zero_optimization.mics_shard_size";
constexpr char const* secondary_size = "zero_optimization.zero_hpz_partition_size";
constexpr char const* hierarchical = "zero_optimization.mics_hierarchical_params_gather";

using Written = std::function<ConfigTree const*(std::string const& key)>;

void resolve_secondary(Written const& written, std::string const& source, ResolvedConfig& config) {
  auto const* size = written(secondary_size);
  if (!size || size->as_int() == 1) return;
  TESSERA_VALIDATE(config.stage == 3, ConfigError, source, ": ", secondary_size, " is ",
                   size->as_int(), " at stage ", config.stage,
                   ", which gathers no weights; use stage 3 or remove the key");
  TESSERA_VALIDATE(config.shard_group_size == 0, ConfigError, source, ": ", secondary_size, " is ",
                   size->as_int(), " and ", shard_size, " is ", config.shard_group_size,
                   "; MiCS gathers within its groups already: remove one of them");
  config.secondary_group_size = size->as_int();
  config.origins["secondary_group_size"] = Origin::deepspeed;
}

}  // namespace

void add_groups(OptionTable& t) {
  t.add(OptionType::integer, secondary_size, 1,
        "ZeRO++: consecutive ranks, usually of a node, that keep a second partition of the weights "
        "of stage 3, from which later gathers of a step come; 1: none")
      .at_least(1)
      .auto_is(by_default);
  t.add(OptionType::integer, shard_size, -1,
        "MiCS: consecutive ranks that share one copy of the model states of stage 3; -1: all ranks")
      .at_least(-1)
      .auto_is(by_default);
  t.add(OptionType::boolean, hierarchical, false,
        "MiCS: gathers of groups that span nodes have two levels, as --collectives two-level")
      .auto_is(by_default);
}

void resolve_communication(Written const& written, std::string const& source,
                           ResolvedConfig& config) {
  resolve_groups(written, source, config);
  resolve_quantization(written, source, config);
}

void resolve_groups(Written const& written, std::string const& source, ResolvedConfig& config) {
  auto const* size = written(shard_size);
  bool const has_groups = size && size->as_int() > 0;
  auto const* gather = written(hierarchical);
  if (has_groups) {
    TESSERA_VALIDATE(
        config.stage == 3, ConfigError, source, ": ", shard_size, " is ", size->as_int(),
        " at stage ", config.stage,
        "; MiCS shares the states of stage 3 in groups: use stage 3 or remove the key");
    config.shard_group_size = size->as_int();
    config.origins["shard_group_size"] = Origin::deepspeed;
  }
  resolve_secondary(written, source, config);
  if (!gather || !gather->as_bool()) return;
  TESSERA_VALIDATE(has_groups, ConfigError, source, ": ", hierarchical,
                   " is true without groups; set ", shard_size, " or remove the key");
  config.hierarchical_gather = true;
  config.origins["hierarchical_gather"] = Origin::deepspeed;
}

}  // namespace tessera::config::detail
