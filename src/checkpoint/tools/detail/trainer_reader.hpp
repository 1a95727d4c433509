#pragma once
/// A checkpoint directory of the Hugging Face Trainer without DeepSpeed (checkpoint-500): the
/// optimizer's states and the position of the run. Its weights are a model directory's.

#include <filesystem>
#include <optional>
#include <vector>

#include "interchange/detail/training_source.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/memory/param_provider.hpp"

namespace tessera::checkpoint::detail {

/// trainer_state.json of @p directory without its lists; nothing where there is none.
/// @throws DataError where what lies next to it is not read: adapters of PEFT, states of FSDP
std::optional<ConfigTree> trainer_record(std::filesystem::path const& directory);

/// The states in optimizer.pt, the steps and the loss scaler; no weights.
/// @param record from trainer_record()
/// @param units of the model, whose parameters optimizer.pt numbers without naming them
/// @throws DataError naming what is not read: frozen parameters, states of an optimizer that
/// Tessera does not have
TrainingSource read_trainer(std::filesystem::path const& directory, ConfigTree const& record,
                            std::vector<memory::UnitSpec> const& units, CrcCheck check);

}  // namespace tessera::checkpoint::detail
