#pragma once
/// Runs that train a part of a model: adapters, or all but frozen parameters.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/comm/base/collectives.hpp"
#include "tessera/config/arguments.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/memory/param_provider.hpp"
#include "tessera/model/layers/lora.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::train {

/// What the arguments ask for, with the targets of the model that @p hf_config describes; none:
/// no adapters. Reads --adapter's directory. @throws ConfigError, IoError, DataError
std::optional<model::LoraOptions> lora_options(config::TrainingArguments const& arguments,
                                               ConfigTree const& hf_config);

/// Targets that no layer of the model has.
std::vector<std::string> unmatched_targets(model::LoraOptions const& lora,
                                           std::vector<memory::UnitSpec> const& units);

/// Values of trained parameters from @p trained, which counts only those of a unit, and of the
/// others from @p frozen, which counts all.
zero::Engine::Fill combine(std::vector<memory::UnitSpec> const& units, zero::Engine::Fill trained,
                           zero::Engine::Fill frozen);

/// How an engine keeps the frozen matrices.
struct KeptBase {
  Dtype dtype = Dtype::fp32;  ///< values are rounded to it
  std::optional<zero::QuantizedBase> codes{};
};

/// The values of @p fill, with the magnitudes of DoRA as PEFT starts them: the norms of the rows of
/// W + s B A, where W is what @p base makes of the matrix. A rank reads the complete matrices of
/// the magnitudes that it owns.
zero::Engine::Fill with_magnitudes(zero::Engine::Fill fill,
                                   std::vector<memory::UnitSpec> const& units,
                                   model::LoraOptions const& lora, KeptBase const& base);

/// A sum over elements that tells other values of frozen parameters from those of a checkpoint: the
/// same for every partition.
class FrozenChecksum {
 public:
  void add(std::string const& parameter, std::int64_t first, std::int64_t numel,
           float const* values);
  /// Returns the checksum over all ranks in hexadecimal. Collective.
  std::string total(comm::Collectives& comm) const;

 private:
  std::uint64_t sum_ = 0;
};

/// Returns the record of frozen parameters for checkpoint::Manifest::frozen; null when every
/// parameter trains.
ConfigTree frozen_record(zero::PartitionPlan const& frozen, std::string const& checksum,
                         std::optional<model::LoraOptions> const& lora, std::string const& base);

/// @throws ConfigError when the adapters or their scale are not those of a checkpoint in
/// @p directory, whose record is @p saved
void check_adapters(ConfigTree const& saved, std::optional<model::LoraOptions> const& lora,
                    std::string const& directory);
/// @throws ConfigError when the frozen values differ
void check_frozen(ConfigTree const& saved, ConfigTree const& now, std::string const& directory);

}  // namespace tessera::train
