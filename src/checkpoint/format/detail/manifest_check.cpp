#include "tessera/checkpoint/format/manifest.hpp"

#include <algorithm>
#include <set>
#include <unordered_set>

#include "format/detail/checksum.hpp"
#include "format/detail/chunk_reader.hpp"
#include "format/detail/json_reader.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {
namespace {

/// Stored chunks: one for each checksum chunk, inside the file, no larger than its elements can
/// take.
void check_chunks(Manifest const& m, ExtentRecord const& extent, StateLocation const& state,
                  std::string const& where) {
  std::int64_t const room = m.shards[static_cast<std::size_t>(extent.shard)].bytes;
  std::int64_t const most = max_stored_bytes(std::min(extent.numel, m.checksum_chunk / 4));
  TESSERA_VALIDATE(static_cast<std::int64_t>(state.chunks.size()) ==
                       chunk_count(extent.numel * 4, m.checksum_chunk),
                   DataError, where, ": ", state.chunks.size(), " chunks for ", extent.numel * 4,
                   " bytes in chunks of ", m.checksum_chunk);
  for (auto const& chunk : state.chunks)
    TESSERA_VALIDATE(chunk.offset <= room && chunk.bytes <= room - chunk.offset &&
                         chunk.bytes >= 1 && chunk.bytes <= most,
                     DataError, where, ": a chunk of ", chunk.bytes, " bytes at ", chunk.offset,
                     " is not inside ", m.shards[static_cast<std::size_t>(extent.shard)].file,
                     " of ", room, " bytes, or is larger than its elements can take (", most, ")");
}

void check_extent(Manifest const& m, std::size_t states, TensorRecord const& tensor,
                  ExtentRecord const& extent, std::string const& where) {
  TESSERA_VALIDATE(extent.shard < static_cast<int>(m.shards.size()), DataError, where, ": shard ",
                   extent.shard, " of ", m.shards.size());
  TESSERA_VALIDATE(extent.numel <= tensor.numel() - extent.offset, DataError, where,
                   ": an extent of ", extent.numel, " elements at ", extent.offset,
                   " ends after the tensor's ", tensor.numel());
  TESSERA_VALIDATE(extent.states.size() == states, DataError, where, ": an extent has ",
                   extent.states.size(), " states, not ", states);
  auto const& shard = m.shards[static_cast<std::size_t>(extent.shard)];
  std::int64_t const bytes = extent.numel * 4, room = shard.bytes;
  for (auto const& state : extent.states) {
    bool const compressed = shard.compression != Compression::none;
    TESSERA_VALIDATE(
        compressed == !state.chunks.empty(), DataError, where, ": an extent in ", shard.file,
        compressed ? " has no chunks" : " has chunks, but the shard is not compressed");
    if (compressed)
      check_chunks(m, extent, state, where);
    else
      TESSERA_VALIDATE(state.file_offset <= room && bytes <= room - state.file_offset, DataError,
                       where, ": ", bytes, " bytes at ", state.file_offset, " are not inside ",
                       shard.file, " of ", room, " bytes");
    TESSERA_VALIDATE(
        static_cast<std::int64_t>(state.xxh3.size()) == chunk_count(bytes, m.checksum_chunk),
        DataError, where, ": ", state.xxh3.size(), " checksums for ", bytes, " bytes in chunks of ",
        m.checksum_chunk);
  }
}

/// A tensor has one run in a shard, and its extents follow each other there as they do in the
/// tensor: they are one dataset.
void check_runs(Manifest const& m, TensorRecord const& tensor, std::string const& where) {
  std::set<int> shards;
  for (auto const& run : tensor.runs()) {
    auto const& file = m.shards[static_cast<std::size_t>(run.shard)].file;
    TESSERA_VALIDATE(shards.insert(run.shard).second, DataError, where, ": ", file,
                     " has two separate parts of it");
    TESSERA_VALIDATE(
        run.extents == 1 ||
            m.shards[static_cast<std::size_t>(run.shard)].compression == Compression::none,
        DataError, where, ": ", file, " is compressed and has ", run.extents,
        " extents of it; one is known");
    for (std::size_t i = run.first_extent + 1; i < run.first_extent + run.extents; ++i)
      for (std::size_t s = 0; s < tensor.extents[i].states.size(); ++s) {
        auto const& before = tensor.extents[i - 1];
        TESSERA_VALIDATE(tensor.extents[i].states[s].file_offset ==
                             before.states[s].file_offset + before.numel * 4,
                         DataError, where, ": the extents at ", before.offset, " and ",
                         tensor.extents[i].offset, " do not follow each other in ", file);
      }
  }
}

/// Tensors with @p states states each. Sorts their extents.
void check_tensors(Manifest const& m, std::size_t states, std::vector<TensorRecord>& tensors,
                   std::string const& source) {
  std::unordered_set<std::string> names;
  for (auto& tensor : tensors) {
    std::string const where = concat(source, ", tensor ", printable(tensor.name));
    TESSERA_VALIDATE(!tensor.name.empty() && names.insert(tensor.name).second, DataError, where,
                     ": the name is empty or is listed twice");
    for (auto const& alias : tensor.aliases)
      TESSERA_VALIDATE(!alias.empty() && names.insert(alias).second, DataError, where,
                       ": the alias '", printable(alias), "' is empty or is listed twice");
    std::sort(tensor.extents.begin(), tensor.extents.end(),
              [](auto const& a, auto const& b) { return a.offset < b.offset; });
    std::int64_t covered = 0;
    for (auto const& extent : tensor.extents) {
      TESSERA_VALIDATE(extent.offset == covered, DataError, where, ": an extent starts at element ",
                       extent.offset, " where ", covered,
                       " was due; extents overlap or leave a hole");
      check_extent(m, states, tensor, extent, where);
      covered += extent.numel;
    }
    TESSERA_VALIDATE(covered == tensor.numel(), DataError, where, ": the extents hold ", covered,
                     " of ", tensor.numel(), " elements");
    check_runs(m, tensor, where);
  }
}

}  // namespace

void check_consistency(Manifest& m, std::string const& source) {
  TESSERA_VALIDATE(m.checksum_chunk % 4 == 0 && m.checksum_chunk <= largest_checksum_chunk,
                   DataError, source, ": checksum_block_bytes is ", m.checksum_chunk,
                   "; a multiple of 4 up to ", largest_checksum_chunk, " is known");
  auto const states = m.state_names();
  TESSERA_VALIDATE(std::set<std::string>(states.begin(), states.end()).size() == states.size() &&
                       !m.states.empty(),
                   DataError, source, ": 'states' is empty, or names one twice");
  std::set<std::string> files;
  for (auto const& shard : m.shards)
    TESSERA_VALIDATE(files.insert(shard.file).second, DataError, source, ": shard file ",
                     shard.file, " is listed twice");
  check_tensors(m, m.states.size(), m.tensors, source);
  for (auto& state : m.reduced_states)
    check_tensors(m, 1, state.tensors, source + ", " + state.name);
}

}  // namespace tessera::checkpoint::detail
