#include "format/detail/shard_file.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "format/detail/checksum.hpp"
#include "format/detail/compressed_shard.hpp"
#include "format/detail/direct_writer.hpp"
#include "format/detail/file.hpp"
#include "format/detail/hdf5.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint::detail {
namespace {

/// The layout of the file of a group, and which run holds which parameter.
struct PlannedShard {
  ShardLayout layout;
  std::map<std::tuple<std::size_t, zero::UnitIndex, int>, std::size_t>
      run_of;  ///< layer, unit, parameter
};

PlannedShard plan_shard(zero::PartitionPlan const& plan, ShardIdentity const& identity,
                        StateLayers const& layers) {
  auto const plans = plans_of(plan, layers);
  PlannedShard planned{{identity, {}, {}}, {}};
  for (auto const& layer : layers)
    planned.layout.states.insert(planned.layout.states.end(), layer.states.begin(),
                                 layer.states.end());
  auto& runs = planned.layout.runs;
  for (Rank rank = identity.group.first; rank < identity.group.end(); ++rank)
    for (auto const& [layer, extent] : layer_extents(plan, layers, rank)) {
      auto const [at, is_new] =
          planned.run_of.try_emplace({layer, extent.unit, extent.parameter}, runs.size());
      auto const& slot =
          plans[layer].unit(extent.unit).parameters[static_cast<std::size_t>(extent.parameter)];
      std::int64_t const first = extent.parameter_offset.value();
      if (is_new) runs.push_back({layers[layer].states, slot.name, slot.shape, first, 0, {}, {}});
      RunLayout& run = runs[at->second];
      TESSERA_EXPECT(first == run.offset + run.numel, "rank ", rank,
                     " does not start where the previous ranks end");
      run.numel += extent.numel;
      run.part_ranks.push_back(value(rank));
      run.part_offsets.push_back(first);
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
  h5::set_attribute(file, "rank", std::int64_t{value(identity.group.first)});
  h5::set_attribute(file, "rank_count", std::int64_t{identity.group.count});
  h5::set_attribute(file, "zero_stage", std::int64_t{identity.zero_stage});
}

void describe(hid_t dataset, ShardIdentity const& identity, RunLayout const& run) {
  h5::set_attribute(dataset, "offset", run.offset);
  h5::set_attribute(dataset, "shape", run.shape);
  h5::set_attribute(dataset, "dtype", std::string("fp32"));
  h5::set_attribute(
      dataset, "rank",
      run.part_ranks.empty() ? std::int64_t{value(identity.group.first)} : run.part_ranks.front());
  h5::set_attribute(dataset, "ranks", std::int64_t{identity.ranks});
  if (identity.group.count == 1 || run.part_ranks.empty()) return;
  h5::set_attribute(dataset, "part_ranks", run.part_ranks);
  h5::set_attribute(dataset, "part_offsets", run.part_offsets);
}

/// Elements [first, first + numel) of an extent: where they are, or in the writer's buffer. @param
/// state counted over all layers
using Elements = std::function<float const*(std::size_t state, LayerExtent const& extent,
                                            std::int64_t first, std::int64_t numel)>;

/// Checks, checksums and writes an extent chunk by chunk: a chunk is still in the cache when it is
/// handed to the system. @return values that are not finite
std::int64_t write_chunks(DirectWriter& file, Elements const& elements, std::size_t state,
                          LayerExtent const& extent, std::int64_t chunk, StateLocation& location) {
  std::int64_t const total = extent.extent.numel * 4;
  std::int64_t nonfinite = 0;
  for (std::int64_t at = 0; at < total; at += chunk) {
    std::int64_t const count = std::min(chunk, total - at);
    float const* data = elements(state, extent, at / 4, count / 4);
    nonfinite += count_nonfinite(data, count / 4);
    location.xxh3.push_back(xxh3(data, count));
    file.write(data, count, location.file_offset + at);
  }
  return nonfinite;
}

/// The elements that one rank writes.
struct RankElements {
  Rank rank = first_rank;
  StateLayers const& layers;
  Elements elements;
  std::int64_t checksum_chunk = 0;  ///< bytes
};

WrittenShard fill(std::filesystem::path const& path, ShardIdentity const& identity,
                  zero::PartitionPlan const& plan, RankElements const& from) {
  auto const planned = plan_shard(plan, identity, from.layers);
  auto const places = read_places(path, planned.layout);
  auto const extents = layer_extents(plan, from.layers, from.rank);
  WrittenShard shard;
  for (auto const& [layer, extent] : extents) {
    std::size_t const run = planned.run_of.at({layer, extent.unit, extent.parameter});
    auto& locations = shard.extents.emplace_back(from.layers[layer].states.size());
    for (std::size_t s = 0; s < locations.size(); ++s)
      locations[s].file_offset =
          places[run][s] + (extent.parameter_offset.value() - planned.layout.runs[run].offset) * 4;
  }
  DirectWriter writer(path);
  shard.bytes = writer.file().size();
  std::size_t state = 0;  // index of the state over all layers
  for (std::size_t layer = 0; layer < from.layers.size(); ++layer)
    for (std::size_t s = 0; s < from.layers[layer].states.size(); ++s, ++state)
      for (std::size_t i = 0; i < extents.size(); ++i) {
        if (extents[i].layer != layer) continue;
        if (auto const count = write_chunks(writer, from.elements, state, extents[i],
                                            from.checksum_chunk, shard.extents[i][s]))
          shard.nonfinite.push_back({i, s, count});
      }
  TESSERA_VALIDATE(writer.file().size() == shard.bytes, InternalError, path.string(), " grew from ",
                   shard.bytes, " to ", writer.file().size(), " bytes while its data was written");
  writer.finish();
  return shard;
}

}  // namespace

std::vector<RankGroup> rank_groups(int ranks, std::vector<Rank> const& starts) {
  std::vector<RankGroup> groups;
  if (starts.empty())
    for (int rank = 0; rank < ranks; ++rank) groups.push_back({rank, Rank(rank), 1});
  for (std::size_t i = 0; i < starts.size(); ++i) {
    Rank const end = i + 1 < starts.size() ? starts[i + 1] : Rank(ranks);
    TESSERA_EXPECT(starts[0] == first_rank && starts[i] < end, "shard file ", i,
                   " would hold ranks ", starts[i], " to ", end, " of ", ranks);
    groups.push_back({static_cast<int>(i), starts[i], value(end) - value(starts[i])});
  }
  return groups;
}

RankGroup group_of(Rank rank, int ranks, std::vector<Rank> const& starts) {
  auto const groups = rank_groups(ranks, starts);
  return *std::find_if(groups.begin(), groups.end(),
                       [&](RankGroup const& g) { return rank < g.end(); });
}

std::string shard_name(int index) {
  char name[32];
  std::snprintf(name, sizeof name, "shard_%05d.h5", index);
  return name;
}

std::vector<LayerExtent> layer_extents(zero::PartitionPlan const& plan, StateLayers const& layers,
                                       Rank rank) {
  auto const plans = plans_of(plan, layers);
  std::vector<LayerExtent> out;
  for (std::size_t layer = 0; layer < layers.size(); ++layer)
    for (auto const& extent : plans[layer].extents(rank)) out.push_back({layer, extent});
  return out;
}

float* extent_data(zero::StateView const& view, zero::PartitionPlan const& plan,
                   zero::ShardExtent const& extent) {
  return view.unit_shards[position(extent.unit)] +
         plan.unit(extent.unit).shard_offset(extent.partition_offset).value();
}

void write_structure(hid_t file, ShardLayout const& layout, int version,
                     std::function<h5::Id(std::string const& path, RunLayout const&)> const& make) {
  set_identity(file, layout.identity, version);
  for (auto const& state : layout.states) {
    std::string const root = "/" + state;
    // a rank of a tiny model may own nothing; the group exists nevertheless
    h5::create_group(file, root);
    for (auto const& run : layout.runs) {
      if (std::find(run.states.begin(), run.states.end(), state) == run.states.end()) continue;
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
    for (auto const& state : layout.runs[r].states) {
      std::string const name = "/" + state + "/" + layout.runs[r].name;
      h5::Id const dataset(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose,
                           path.string() + " has no dataset " + name);
      places[r].push_back(h5::offset_of(dataset, name));
    }
  return places;
}

void create_shard_structure(std::filesystem::path const& path, ShardIdentity const& identity,
                            zero::PartitionPlan const& plan, StateLayers const& layers) {
  create_shard(path, plan_shard(plan, identity, layers).layout);
}

WrittenShard fill_shard(std::filesystem::path const& path, ShardIdentity const& identity,
                        zero::PartitionPlan const& plan, Rank rank, StateViews const& states,
                        std::int64_t checksum_chunk) {
  auto const layers = layers_of(states);
  auto const plans = plans_of(plan, layers);
  auto const elements = [&](std::size_t s, LayerExtent const& extent, std::int64_t first,
                            std::int64_t) {
    return extent_data(states[s], plans[extent.layer], extent.extent) + first;
  };
  return fill(path, identity, plan, {rank, layers, elements, checksum_chunk});
}

WrittenShard fill_shard(std::filesystem::path const& path, ShardIdentity const& identity,
                        zero::PartitionPlan const& plan, Rank rank, StreamedStates const& states,
                        std::int64_t checksum_chunk) {
  std::vector<float> buffer;
  auto const elements = [&](std::size_t s, LayerExtent const& extent, std::int64_t first,
                            std::int64_t numel) {
    buffer.resize(static_cast<std::size_t>(numel));
    states.read(states.names[s], extent.extent, first, numel, buffer.data());
    return buffer.data();
  };
  StateLayers const layers{{optim::Extent::elementwise, states.names}};
  return fill(path, identity, plan, {rank, layers, elements, checksum_chunk});
}

std::string WrittenShard::pack() const {
  std::vector<std::uint64_t> words{static_cast<std::uint64_t>(bytes),
                                   static_cast<std::uint64_t>(microseconds), extents.size()};
  for (auto const& extent : extents) {
    words.push_back(extent.size());
    for (auto const& location : extent) {
      words.push_back(static_cast<std::uint64_t>(location.file_offset));
      words.push_back(location.xxh3.size());
      words.insert(words.end(), location.xxh3.begin(), location.xxh3.end());
    }
  }
  for (auto const& bad : nonfinite)
    words.insert(words.end(), {bad.extent, bad.state, static_cast<std::uint64_t>(bad.count)});
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
  shard.microseconds = static_cast<std::int64_t>(next());
  std::size_t const extents = next();
  for (std::size_t i = 0; i < extents; ++i) {
    auto& extent = shard.extents.emplace_back();
    std::size_t const states = next();
    for (std::size_t s = 0; s < states; ++s) {
      auto& location = extent.emplace_back();
      location.file_offset = static_cast<std::int64_t>(next());
      location.xxh3.resize(next());
      for (auto& sum : location.xxh3) sum = next();
    }
  }
  while (at < words.size()) {
    std::size_t const extent = next(), state = next();
    shard.nonfinite.push_back({extent, state, static_cast<std::int64_t>(next())});
  }
  return shard;
}

}  // namespace tessera::checkpoint::detail
