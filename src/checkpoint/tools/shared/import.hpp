#pragma once
/// Training states of other programs converted to checkpoints that a run can resume from.
/// Streaming: memory does not grow with the model. Nothing in the files that are read is executed.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tessera/checkpoint/format/directory.hpp"
#include "tessera/checkpoint/format/nonfinite.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/memory/param_provider.hpp"

namespace tessera::checkpoint {

/// Whether the CRC-32 of every byte of a torch file is compared before it is used (one more pass
/// over it), or only that of its pickle.
enum class Integrity { check, trust };

struct ImportOptions {
  /// DeepSpeed's save_dir or one tag of it (ZeRO 1 to 3, any number of ranks; universal), a Hugging
  /// Face model directory, or a checkpoint of its Trainer.
  std::filesystem::path source;
  std::string tag = "";  ///< tag of a DeepSpeed checkpoint; empty: what its `latest` says
  std::filesystem::path checkpoints = {};    ///< gets step_<N> and `latest`
  ConfigTree model_config = {};              ///< Hugging Face config.json
  std::vector<memory::UnitSpec> units = {};  ///< units of the model of `model_config`: names,
                                             ///< shapes, order
  ConfigTree versions = {};                  ///< for the manifest
  Integrity integrity = Integrity::check;
  std::int64_t max_shard_bytes = std::int64_t{4} << 30;  ///< about, of one shard file
  ProgressCall progress = {};                            ///< bytes of elements written
  WhenDamaged when_damaged = WhenDamaged::refuse;        ///< DeepSpeed's latest, without a tag
};

struct ImportReport {
  std::string format;  ///< what was read
  std::filesystem::path source, checkpoint;
  std::int64_t step = 0, optimizer_steps = 0;
  std::int64_t tensors = 0, parameters = 0, bytes = 0;
  bool has_optimizer_states = false;
  std::vector<std::string>
      notes;  ///< what the user should know: frozen parameters, buffers left out
  std::vector<NonFinite> nonfinite;  ///< values that are inf or NaN
  double seconds = 0;
};

/// @throws IoError, DataError naming file and tensor (damage, another model, what is not read), as
/// docs/how-to/import-from-deepspeed.md lists
ImportReport import_checkpoint(ImportOptions const& options);

/// @throws DataError when @p source is a checkpoint of a kind that is not read, whatever its model:
/// the Trainer's of a PEFT or FSDP run. An import looks at this first.
void check_source(std::filesystem::path const& source);

/// Whether @p directory is DeepSpeed's save_dir, with one checkpoint or several, or one of its
/// tags.
bool holds_deepspeed_checkpoint(std::filesystem::path const& directory);

/// config.json of the model a source belongs to: in the directory, or next to the tag's. Null when
/// there is none.
std::optional<std::filesystem::path> find_model_config(std::filesystem::path const& source);

}  // namespace tessera::checkpoint
