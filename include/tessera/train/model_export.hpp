#pragma once
/// The trained model as a Hugging Face directory, at the end of a run.

#include <filesystem>
#include <optional>
#include <vector>

#include "tessera/comm/collectives.hpp"
#include "tessera/core/dtype.hpp"

namespace tessera::train {

struct ModelExport {
  std::filesystem::path shards;  ///< checkpoint directory with the weights
  std::filesystem::path output_dir;
  std::optional<Dtype> dtype;                          ///< none: fp32
  std::vector<std::filesystem::path> tokenizer_files;  ///< copied next to the model; read on rank 0
};

/// Rank 0 streams config.json and safetensors from the shards and copies the tokenizer; no rank
/// ever holds the full model. Collective. @throws IoError on every rank
void export_model(ModelExport const& options, comm::Collectives& comm);

}  // namespace tessera::train
