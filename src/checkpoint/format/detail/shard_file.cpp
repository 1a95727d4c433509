#include "format/detail/shard_file.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

#include "format/detail/block_writer.hpp"
#include "format/detail/checksum.hpp"
#include "format/detail/compressed_shard.hpp"
#include "format/detail/file.hpp"
#include "format/detail/hdf5.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {
namespace {

/// The layout of the file of a group, and which run holds which parameter.
struct PlannedShard {
  ShardLayout layout;
  std::map<std::pair<int, int>, std::size_t> run_of;  ///< unit, parameter
};

PlannedShard plan_shard(zero::PartitionPlan const& plan, ShardIdentity const& identity,
                        std::vector<std::string> const& states) {
  PlannedShard planned{{identity, states, {}}, {}};
  auto& runs = planned.layout.runs;
  for (int rank = identity.group.first; rank < identity.group.end(); ++rank)
    for (auto const& piece : plan.extents(rank)) {
      auto const [at, is_new] =
          planned.run_of.try_emplace({piece.unit, piece.parameter}, runs.size());
      auto const& slot =
          plan.unit(piece.unit).parameters[static_cast<std::size_t>(piece.parameter)];
      if (is_new) runs.push_back({slot.name, slot.shape, piece.parameter_offset, 0, {}, {}});
      RunLayout& run = runs[at->second];
      TESSERA_EXPECT(piece.parameter_offset == run.offset + run.numel, "rank ", rank,
                     " does not go on where the ranks before it end");
      run.numel += piece.numel;
      run.part_ranks.push_back(rank);
      run.part_offsets.push_back(piece.parameter_offset);
    }
  return planned;
}

void set_identity(hid_t file, ShardIdentity const& identity, int version) {
  h5::set_attribute(file, "format", std::string("tessera-shard"));
  h5::set_attribute(file, "format_version", std::int64_t{version});
  h5::set_attribute(file, "creator", std::string("Tessera"));
  h5::set_attribute(file, "run_id", identity.run_id);
  h5::set_attribute(file, "step", identity.step);
  h5::set_attribute(file, "world_size", std::int64_t{identity.ranks});
  h5::set_attribute(file, "rank", std::int64_t{identity.group.first});
  h5::set_attribute(file, "rank_count", std::int64_t{identity.group.count});
  h5::set_attribute(file, "zero_stage", std::int64_t{identity.zero_stage});
}

void describe(hid_t dataset, ShardIdentity const& identity, RunLayout const& run) {
  h5::set_attribute(dataset, "offset", run.offset);
  h5::set_attribute(dataset, "shape", run.shape);
  h5::set_attribute(dataset, "dtype", std::string("fp32"));
  h5::set_attribute(
      dataset, "rank",
      run.part_ranks.empty() ? std::int64_t{identity.group.first} : run.part_ranks.front());
  h5::set_attribute(dataset, "ranks", std::int64_t{identity.ranks});
  if (identity.group.count == 1 || run.part_ranks.empty()) return;
  h5::set_attribute(dataset, "part_ranks", run.part_ranks);
  h5::set_attribute(dataset, "part_offsets", run.part_offsets);
}

/// Elements [first, first + numel) of a piece: where they are, or in the writer's buffer.
using Elements = std::function<float const*(std::size_t state, zero::ShardExtent const& piece,
                                            std::int64_t first, std::int64_t numel)>;

/// Checksums and writes a piece block by block: a block is still in the cache when it is handed to
/// the system.
void write_blocks(BlockWriter& file, Elements const& elements, std::size_t state,
                  zero::ShardExtent const& piece, std::int64_t block, StateExtent& extent) {
  std::int64_t const total = piece.numel * 4;
  for (std::int64_t at = 0; at < total; at += block) {
    std::int64_t const count = std::min(block, total - at);
    float const* data = elements(state, piece, at / 4, count / 4);
    extent.xxh3.push_back(xxh3(data, count));
    file.write(data, count, extent.file_offset + at);
  }
}

WrittenShard fill(std::filesystem::path const& path, ShardIdentity const& identity,
                  zero::PartitionPlan const& plan, int rank, std::vector<std::string> const& states,
                  Elements const& elements, std::int64_t checksum_block) {
  auto const planned = plan_shard(plan, identity, states);
  auto const places = read_places(path, planned.layout);
  auto const pieces = plan.extents(rank);
  WrittenShard shard;
  shard.pieces.assign(pieces.size(), std::vector<StateExtent>(states.size()));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    std::size_t const run = planned.run_of.at({pieces[i].unit, pieces[i].parameter});
    for (std::size_t s = 0; s < states.size(); ++s)
      shard.pieces[i][s].file_offset =
          places[run][s] + (pieces[i].parameter_offset - planned.layout.runs[run].offset) * 4;
  }
  BlockWriter writer(path);
  shard.bytes = writer.file().size();
  for (std::size_t s = 0; s < states.size(); ++s)
    for (std::size_t i = 0; i < pieces.size(); ++i)
      write_blocks(writer, elements, s, pieces[i], checksum_block, shard.pieces[i][s]);
  TESSERA_VALIDATE(writer.file().size() == shard.bytes, InternalError, path.string(), " grew from ",
                   shard.bytes, " to ", writer.file().size(), " bytes while its data was written");
  writer.finish();
  return shard;
}

}  // namespace

std::vector<RankGroup> rank_groups(int ranks, std::vector<int> const& starts) {
  std::vector<RankGroup> groups;
  if (starts.empty())
    for (int rank = 0; rank < ranks; ++rank) groups.push_back({rank, rank, 1});
  for (std::size_t i = 0; i < starts.size(); ++i) {
    int const end = i + 1 < starts.size() ? starts[i + 1] : ranks;
    TESSERA_EXPECT(starts[0] == 0 && starts[i] < end, "shard file ", i, " would hold ranks ",
                   starts[i], " to ", end, " of ", ranks);
    groups.push_back({static_cast<int>(i), starts[i], end - starts[i]});
  }
  return groups;
}

RankGroup group_of(int rank, int ranks, std::vector<int> const& starts) {
  auto const groups = rank_groups(ranks, starts);
  return *std::find_if(groups.begin(), groups.end(),
                       [&](RankGroup const& g) { return rank < g.end(); });
}

std::string shard_name(int index) {
  char name[32];
  std::snprintf(name, sizeof name, "shard_%05d.h5", index);
  return name;
}

float* piece_data(zero::StateView const& view, zero::PartitionPlan const& plan,
                  zero::ShardExtent const& piece) {
  return view.unit_shards[static_cast<std::size_t>(piece.unit)] +
         (piece.partition_offset - plan.unit(piece.unit).partition_offset);
}

void write_structure(hid_t file, ShardLayout const& layout, int version,
                     std::function<h5::Id(std::string const& path, RunLayout const&)> const& make) {
  set_identity(file, layout.identity, version);
  for (auto const& state : layout.states) {
    std::string const root = "/" + state;
    // a rank of a tiny model may own nothing; the group is there all the same
    h5::create_group(file, root);
    for (auto const& run : layout.runs) {
      h5::Id dataset = make(root + "/" + run.name, run);
      describe(dataset, layout.identity, run);
      dataset.close("cannot close HDF5 dataset " + root + "/" + run.name);
    }
  }
}

void create_shard(std::filesystem::path const& path, ShardLayout const& layout) {
  h5::Id structure =
      h5::create_file(path, static_cast<std::int64_t>(layout.runs.size() * layout.states.size()));
  write_structure(structure, layout, layout.identity.group.count > 1 ? 2 : 1,
                  [&](std::string const& name, RunLayout const& run) {
                    return h5::create_dataset(structure, name, {run.numel}, Dtype::fp32);
                  });
  structure.close("cannot close HDF5 file " + path.string());
  File file = File::open_write(path);
  file.reserve(file.size());
  file.close();
}

std::vector<std::vector<std::int64_t>> read_places(std::filesystem::path const& path,
                                                   ShardLayout const& layout) {
  h5::Id const file = h5::open_file(path);
  std::vector<std::vector<std::int64_t>> places(layout.runs.size());
  for (std::size_t r = 0; r < layout.runs.size(); ++r)
    for (auto const& state : layout.states) {
      std::string const name = "/" + state + "/" + layout.runs[r].name;
      h5::Id const dataset(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose,
                           path.string() + " has no dataset " + name);
      places[r].push_back(h5::offset_of(dataset, name));
    }
  return places;
}

void lay_out_shard(std::filesystem::path const& path, ShardIdentity const& identity,
                   zero::PartitionPlan const& plan, std::vector<std::string> const& states) {
  create_shard(path, plan_shard(plan, identity, states).layout);
}

WrittenShard fill_shard(std::filesystem::path const& path, ShardIdentity const& identity,
                        zero::PartitionPlan const& plan, int rank, StateViews const& states,
                        std::int64_t checksum_block) {
  std::vector<std::string> names;
  for (auto const& state : states) names.push_back(state.name);
  return fill(
      path, identity, plan, rank, names,
      [&](std::size_t s, zero::ShardExtent const& piece, std::int64_t first, std::int64_t) {
        return piece_data(states[s], plan, piece) + first;
      },
      checksum_block);
}

WrittenShard fill_shard(std::filesystem::path const& path, ShardIdentity const& identity,
                        zero::PartitionPlan const& plan, int rank, StreamedStates const& states,
                        std::int64_t checksum_block) {
  std::vector<float> buffer;
  auto const elements = [&](std::size_t s, zero::ShardExtent const& piece, std::int64_t first,
                            std::int64_t numel) {
    buffer.resize(static_cast<std::size_t>(numel));
    states.read(states.names[s], piece, first, numel, buffer.data());
    return buffer.data();
  };
  return fill(path, identity, plan, rank, states.names, elements, checksum_block);
}

std::string WrittenShard::pack() const {
  std::vector<std::uint64_t> words{static_cast<std::uint64_t>(bytes), pieces.size(),
                                   pieces.empty() ? 0 : pieces[0].size()};
  for (auto const& piece : pieces)
    for (auto const& extent : piece) {
      words.push_back(static_cast<std::uint64_t>(extent.file_offset));
      words.push_back(extent.xxh3.size());
      words.insert(words.end(), extent.xxh3.begin(), extent.xxh3.end());
    }
  return std::string(reinterpret_cast<char const*>(words.data()), words.size() * sizeof words[0]);
}

WrittenShard WrittenShard::unpack(std::string const& packed) {
  std::vector<std::uint64_t> words(packed.size() / sizeof(std::uint64_t));
  std::memcpy(words.data(), packed.data(), words.size() * sizeof words[0]);
  std::size_t at = 0;
  auto const next = [&] {
    TESSERA_VALIDATE(at < words.size(), InternalError, "a rank's shard record has ", packed.size(),
                     " bytes and ends too early");
    return words[at++];
  };
  WrittenShard shard;
  shard.bytes = static_cast<std::int64_t>(next());
  std::size_t const pieces = next(), states = next();
  for (std::size_t i = 0; i < pieces; ++i) {
    auto& piece = shard.pieces.emplace_back();
    for (std::size_t s = 0; s < states; ++s) {
      auto& extent = piece.emplace_back();
      extent.file_offset = static_cast<std::int64_t>(next());
      extent.xxh3.resize(next());
      for (auto& sum : extent.xxh3) sum = next();
    }
  }
  return shard;
}

}  // namespace tessera::checkpoint::detail
