#pragma once
/// Which parts of which tensors go into which file of a converted checkpoint.

#include <vector>

#include "tessera/checkpoint/format/manifest.hpp"
#include "tessera/checkpoint/tools/convert.hpp"

namespace tessera::checkpoint::detail {

/// What one rank owns of a tensor.
struct TensorPart {
  std::size_t tensor = 0;
  int rank = -1;  ///< -1: several ranks, not known which
  std::int64_t offset = 0, numel = 0;
};

struct PlannedFile {
  int first_rank = 0, ranks = 0;
  std::vector<TensorPart>
      parts;  ///< by tensor, then by offset; those of a tensor follow each other
};

/// @throws UsageError, DataError as convert() does
std::vector<PlannedFile> plan_conversion(Manifest const& source, ConvertOptions const& options);
/// Ranks of the converted checkpoint.
int ranks_after(Manifest const& source, ConvertOptions const& options);

}  // namespace tessera::checkpoint::detail
