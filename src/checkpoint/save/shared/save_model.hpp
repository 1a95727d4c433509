#pragma once
/// The trained weights as a Hugging Face directory, written by all ranks from their own shards: no
/// rank gathers the model, and nothing is staged on disk.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "tessera/checkpoint/format/nonfinite.hpp"
#include "tessera/checkpoint/interchange/tensor_writer.hpp"
#include "tessera/checkpoint/save/save.hpp"
#include "tessera/comm/base/collectives.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/memory/param_provider.hpp"
#include "tessera/zero/layout/partition_plan.hpp"
#include "tessera/zero/layout/state_view.hpp"

namespace tessera::checkpoint {

/// Request to save a model; its members are equal on all ranks, except where noted.
struct SaveModelRequest {
  std::filesystem::path directory;
  zero::PartitionPlan const& plan;
  std::vector<memory::UnitSpec> const& units;  ///< what is written: those of `plan` train
  /// Plan of the parameters that do not train; null: all parameters train.
  zero::PartitionPlan const* frozen_plan = nullptr;
  std::function<std::vector<float>(zero::UnitIndex unit)> frozen_shard = {};
  WeightsOf what = WeightsOf::model;
  Dtype dtype = Dtype::fp32;
  ConfigTree model_config = {};                         ///< or the adapter's; read on rank 0
  std::vector<std::filesystem::path> extra_files = {};  ///< to copy (tokenizer); read on rank 0
  std::int64_t max_shard_bytes = 5'000'000'000;
};

struct SavedModel {
  std::vector<std::filesystem::path> files;  ///< on rank 0; empty elsewhere
  std::vector<NonFinite> nonfinite;          ///< values beyond the range of the dtype, of all ranks
};

/// Writes config.json (adapter_config.json), the safetensors weights and the extra files. Rank 0
/// makes the files under temporary names with their final sizes, each rank writes its elements of
/// @p weights, and rank 0 renames. A failure on any rank leaves the directory as it was.
/// Collective.
/// @throws IoError on every rank; ConfigError when weights are inf or NaN in fp32
SavedModel save_model(SaveModelRequest const& request, zero::StateView const& weights,
                      comm::Collectives& comm);

/// Checks before a run trains whether its end will fit. Rank 0 compares the free space with the
/// bytes of the final model and, where the run saves, of one checkpoint more than there are.
/// Collective.
/// @param checkpoint  a save of the run; null: it makes none
/// @throws IoError on every rank
void require_room(SaveModelRequest const& model, SaveRequest const* checkpoint,
                  StateLayers const& layers, comm::Collectives& comm);

}  // namespace tessera::checkpoint
