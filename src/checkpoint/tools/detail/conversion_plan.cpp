#include "tools/detail/conversion_plan.hpp"

#include <algorithm>

#include "tessera/core/error.hpp"
#include "tessera/core/rounding.hpp"

namespace tessera::checkpoint::detail {
namespace {

/// Cuts are made at multiples: a 4 KiB page of elements.
constexpr std::int64_t cut_alignment = 1024;

int rank_of(Manifest const& m, ExtentRecord const& extent) {
  auto const& shard = m.shards[static_cast<std::size_t>(extent.shard)];
  if (extent.rank >= 0) return extent.rank;
  if (shard.ranks == 0) return extent.shard;  // written before shards named their ranks: one each
  return shard.ranks == 1 ? shard.first_rank : -1;
}

/// The parts as they are.
std::vector<TensorPart> parts_of(Manifest const& m) {
  std::vector<TensorPart> parts;
  for (std::size_t t = 0; t < m.tensors.size(); ++t)
    for (auto const& extent : m.tensors[t].extents)
      parts.push_back({t, rank_of(m, extent), extent.offset, extent.numel});
  return parts;
}

/// All tensors, one after the other, in equal parts.
std::vector<TensorPart> cut_for(Manifest const& m, int ranks) {
  std::int64_t const total = m.parameter_count(), even = ceil_divide(total, ranks);
  std::int64_t const share = round_up(even, cut_alignment);
  std::vector<TensorPart> parts;
  std::int64_t at = 0;
  for (std::size_t t = 0; t < m.tensors.size(); ++t)
    for (std::int64_t offset = 0, numel = m.tensors[t].numel(); offset < numel;) {
      std::int64_t const count = std::min(numel - offset, share - at % share);
      parts.push_back({t, static_cast<int>(at / share), offset, count});
      offset += count, at += count;
    }
  return parts;
}

/// The files of the source with what is in them.
std::vector<PlannedFile> same_files(Manifest const& m) {
  std::vector<PlannedFile> files;
  for (std::size_t i = 0; i < m.shards.size(); ++i)
    files.push_back({m.shards[i].ranks > 0 ? m.shards[i].first_rank : static_cast<int>(i),
                     std::max(m.shards[i].ranks, 1),
                     {}});
  for (std::size_t t = 0; t < m.tensors.size(); ++t)
    for (auto const& extent : m.tensors[t].extents)
      files[static_cast<std::size_t>(extent.shard)].parts.push_back(
          {t, rank_of(m, extent), extent.offset, extent.numel});
  return files;
}

}  // namespace

int ranks_after(Manifest const& source, ConvertOptions const& options) {
  return options.ranks > 0 ? options.ranks : source.world_size;
}

std::vector<PlannedFile> plan_conversion(Manifest const& m, ConvertOptions const& options) {
  if (options.ranks == 0 && options.ranks_per_file == 0) return same_files(m);
  int const ranks = ranks_after(m, options),
            per_file = std::min(std::max(options.ranks_per_file, 1), ranks);
  std::vector<PlannedFile> files;
  for (int first = 0; first < ranks; first += per_file)
    files.push_back({first, std::min(per_file, ranks - first), {}});
  for (auto const& part : options.ranks > 0 ? cut_for(m, ranks) : parts_of(m)) {
    TESSERA_VALIDATE(
        part.rank >= 0, DataError, m.file().string(), ": ", m.tensors[part.tensor].name,
        " is compressed with the parts of several ranks as one, so that ",
        "they cannot be told apart any more; convert it again with --ranks ", m.world_size);
    TESSERA_VALIDATE(part.rank < ranks, DataError, m.file().string(), ": a part of rank ",
                     part.rank, " of ", ranks, " ranks");
    auto& parts = files[static_cast<std::size_t>(part.rank / per_file)].parts;
    bool const follows = parts.empty() || parts.back().tensor < part.tensor ||
                         parts.back().offset + parts.back().numel == part.offset;
    TESSERA_VALIDATE(
        follows, DataError, m.file().string(), ": the parts of ", m.tensors[part.tensor].name,
        " are not in the order of the ranks; convert it again with --ranks ", m.world_size);
    parts.push_back(part);
  }
  return files;
}

}  // namespace tessera::checkpoint::detail
