#pragma once
/// The settings of engine and model, from a resolved configuration.

#include "tessera/config/arguments.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/model/families/registry.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::train {

/// How the model computes.
model::ModelOptions model_options(config::ResolvedConfig const& config);

/// How many operations move a unit: those of at most the bucket sizes, or one.
enum class UnitMessages { by_bucket_size, one };
/// Returns `one` when this process has started NCCL.
UnitMessages unit_messages();

/// What the ZeRO engine reads. @param lora the adapters of the model: they say in which layout
/// its matrices are, which a quantized base depends on
zero::EngineConfig engine_config(config::ResolvedConfig const& config,
                                 std::optional<model::LoraOptions> const& lora = {},
                                 UnitMessages messages = UnitMessages::by_bucket_size);

/// The weights of a reference model of preferences that has weights of its own.
zero::EngineConfig reference_config(config::ResolvedConfig config);
/// New adapters leave the model before the training as it was.
bool reference_is_part_of_model(config::TrainingArguments const& arguments,
                                std::optional<model::LoraOptions> const& lora);

/// @throws ConfigError when no engine trains as @p config says in a model's memory space
void check_space(config::ResolvedConfig const& config, memory::MemorySpace space);

}  // namespace tessera::train
