#pragma once
/// A model with its low-rank adapters added to the weights, as a Hugging Face directory that needs
/// no adapter: what PEFT's merge_and_unload() computes.

#include <cstdint>
#include <filesystem>
#include <vector>

#include "tessera/checkpoint/tools/consolidate.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/memory/param_provider.hpp"

namespace tessera::checkpoint {

enum class AdaptedLayout { out_in, in_out };  ///< layouts of the matrices that adapters belong to

struct MergeOptions {
  std::filesystem::path model;         ///< Hugging Face directory
  std::filesystem::path adapter_file;  ///< adapter_weights_file()
  std::filesystem::path output;
  std::vector<memory::UnitSpec> units;  ///< units of the adapted model
  /// Rows of the embedding in the model's files, where the units have more: those get the mean of
  /// the others, as in a run with more tokens than rows; 0: the units have the rows of the files.
  std::int64_t stored_vocabulary = 0;
  /// W + scale * B A, whose rows have the norms of the magnitudes that the units may have
  double scale = 1.0;
  AdaptedLayout layout = AdaptedLayout::out_in;
  ConfigTree model_config;
  Dtype dtype = Dtype::fp32;
  std::int64_t max_shard_bytes = 5'000'000'000;
  WhenPresent when_present = WhenPresent::refuse;
};

struct MergeReport {
  std::vector<std::filesystem::path> files;
  std::int64_t tensors = 0, adapted = 0;  ///< written; of these, changed by adapters
};

/// Rows of the embedding or the head that PEFT saved next to the adapters, as it does where they
/// were resized; 0: it saved none.
std::int64_t saved_vocabulary(std::filesystem::path const& adapter_file,
                              std::vector<memory::UnitSpec> const& units, std::int64_t vocabulary);

/// Streams the weights row by row of their matrices. Parameters of the model that PEFT saved next
/// to the adapters take the place of the model's. Tokenizer: the adapter's, else the model's.
/// @throws DataError when the files do not fit the units
MergeReport merge_adapter(MergeOptions const& options);

}  // namespace tessera::checkpoint
