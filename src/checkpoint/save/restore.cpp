#include "tessera/checkpoint/save/restore.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <unordered_map>

#include "format/detail/chunk_reader.hpp"
#include "format/detail/json_reader.hpp"
#include "format/detail/shard_file.hpp"
#include "save/detail/collective_try.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint {
namespace {

/// The part of a saved extent that goes to one place in this rank's memory.
struct Transfer {
  detail::ExtentState source;
  std::int64_t first = 0, numel = 0;  ///< elements of the extent
  float* out = nullptr;
};

/// The manifest's tensor of every parameter of the plan, [unit][parameter].
std::vector<std::vector<TensorRecord const*>> match(Manifest const& manifest,
                                                    zero::PartitionPlan const& plan) {
  std::unordered_map<std::string, TensorRecord const*> by_name;
  for (auto const& tensor : manifest.tensors) by_name.emplace(tensor.name, &tensor);
  std::vector<std::vector<TensorRecord const*>> matched;
  std::size_t parameters = 0;
  for (auto const& unit : plan.units()) {
    auto& row = matched.emplace_back();
    for (auto const& slot : unit.parameters) {
      auto const it = by_name.find(slot.name);
      TESSERA_VALIDATE(it != by_name.end(), DataError, manifest.file().string(), " has no tensor ",
                       slot.name,
                       "; the checkpoint is of another model: compare its model_config with yours");
      TESSERA_VALIDATE(it->second->shape == slot.shape, DataError, manifest.file().string(),
                       ": tensor ", slot.name, " has shape ", detail::list_text(it->second->shape),
                       ", the model wants ", detail::list_text(slot.shape),
                       "; the checkpoint is of another model: compare its model_config with yours");
      row.push_back(it->second);
      ++parameters;
    }
  }
  TESSERA_VALIDATE(
      parameters == manifest.tensors.size(), DataError, manifest.file().string(), " has ",
      manifest.tensors.size(), " tensors, the model ", parameters,
      " parameters; the checkpoint is of another model: compare its model_config with yours");
  return matched;
}

/// Saved extents that hold elements [first, first + numel) of a tensor.
void plan_transfers(TensorRecord const& tensor, std::size_t state, std::int64_t first,
                    std::int64_t numel, float* out, std::vector<Transfer>& transfers) {
  auto extent =
      std::upper_bound(tensor.extents.begin(), tensor.extents.end(), first,
                       [](std::int64_t at, ExtentRecord const& p) { return at < p.offset; });
  --extent;  // extents start at element 0
  while (numel > 0) {
    std::int64_t const skip = first - extent->offset, count = std::min(numel, extent->numel - skip);
    transfers.push_back({{&tensor, &*extent, state}, skip, count, out});
    first += count, numel -= count, out += count;
    ++extent;
  }
}

/// A checksum chunk that a transfer needs.
struct Need {
  Transfer const* transfer = nullptr;
  std::int64_t chunk = 0;
};

std::vector<Need> needs_of(std::vector<Transfer> const& transfers, std::int64_t chunk) {
  std::vector<Need> needs;
  for (auto const& t : transfers)
    for (std::int64_t b = t.first * 4 / chunk; b * chunk < (t.first + t.numel) * 4; ++b)
      needs.push_back({&t, b});
  return needs;
}

/// A full chunk straight to its destination, one at an edge through @p edge. Counts what is not
/// finite of the elements that are taken.
void read(Manifest const& manifest, detail::ShardFiles& files, Need const& need,
          std::vector<char>& edge, NonFiniteTally& nonfinite) {
  Transfer const& t = *need.transfer;
  std::int64_t const chunk = manifest.checksum_chunk, total = t.source.extent->numel * 4;
  std::int64_t const begin = t.first * 4, end = begin + t.numel * 4;
  std::int64_t const chunk_begin = need.chunk * chunk,
                     chunk_end = std::min(total, chunk_begin + chunk);
  auto* out = reinterpret_cast<char*>(t.out);
  auto const count = [&](char const* data, std::int64_t bytes) {
    nonfinite.add(t.source.tensor->name, manifest.states[t.source.state],
                  count_nonfinite(reinterpret_cast<float const*>(data), bytes / 4));
  };
  if (begin <= chunk_begin && chunk_end <= end) {
    detail::read_chunk(manifest, files, t.source, need.chunk, out + (chunk_begin - begin));
    count(out + (chunk_begin - begin), chunk_end - chunk_begin);
    return;
  }
  edge.resize(static_cast<std::size_t>(std::min(chunk, total)));
  detail::read_chunk(manifest, files, t.source, need.chunk, edge.data());
  std::int64_t const from = std::max(begin, chunk_begin), to = std::min(end, chunk_end);
  std::memcpy(out + (from - begin), edge.data() + (from - chunk_begin),
              static_cast<std::size_t>(to - from));
  count(out + (from - begin), to - from);
}

/// The disk works on what comes next while a chunk is copied and checked.
void read_all(Manifest const& manifest, std::vector<Transfer> const& transfers,
              RestoreReport& report) {
  constexpr std::int64_t far_ahead = std::int64_t{32} << 20;
  auto const needs = needs_of(transfers, manifest.checksum_chunk);
  detail::ShardFiles files(manifest);
  std::vector<char> edge;
  NonFiniteTally nonfinite;
  std::size_t next = 0;
  std::int64_t ahead = 0;  // bytes asked for and not read yet
  for (auto const& need : needs) {
    for (; next < needs.size() && ahead < far_ahead; ++next) {
      auto const& source = needs[next].transfer->source;
      auto const place = detail::location_of(manifest, source, needs[next].chunk);
      files.open(source.extent->shard).read_ahead(place.offset, place.bytes);
      ahead += place.bytes;
    }
    read(manifest, files, need, edge, nonfinite);
    ahead -= detail::location_of(manifest, need.transfer->source, need.chunk).bytes;
  }
  report.bytes_read += files.bytes_read();
  auto const& found = nonfinite.list();
  report.nonfinite.insert(report.nonfinite.end(), found.begin(), found.end());
}

/// Elements of the rank's shards that belong to no parameter.
void clear_padding(zero::PartitionPlan const& plan, Rank rank,
                   std::vector<zero::ShardExtent> const& extents, zero::StateView const& view) {
  // End of what is taken so far, per unit
  std::vector<zero::ShardOffset> end(plan.units().size());
  auto const clear = [&](zero::UnitIndex u, zero::ShardOffset from, zero::ShardOffset to) {
    if (from < to)
      std::fill(view.unit_shards[position(u)] + from.value(),
                view.unit_shards[position(u)] + to.value(), 0.0f);
  };
  for (auto const& extent : extents) {
    auto& at = end[position(extent.unit)];
    auto const start = plan.unit(extent.unit).shard_offset(extent.partition_offset);
    clear(extent.unit, at, start);
    at = start + extent.numel;
  }
  for (zero::UnitIndex u = zero::first_unit; u < plan.end_unit(); ++u)
    if (plan.unit(u).is_on(rank))
      clear(u, end[position(u)], zero::ShardOffset(plan.unit(u).shard_numel));
}

/// The shards of what a rank has of one layer: @p manifest and @p plan are those of the layer.
void add_shards(Manifest const& manifest, zero::PartitionPlan const& plan, Rank rank,
                std::set<int>& shards) {
  auto const tensors = match(manifest, plan);
  for (auto const& extent : plan.extents(rank)) {
    auto const& tensor =
        *tensors[position(extent.unit)][static_cast<std::size_t>(extent.parameter)];
    std::int64_t const first = extent.parameter_offset.value(), end = first + extent.numel;
    for (auto const& saved : tensor.extents)
      if (saved.offset < end && first < saved.offset + saved.numel) shards.insert(saved.shard);
  }
}

/// States of one layer: @p manifest and @p plan are those of the layer. Adds to @p report.
void restore_layer(Manifest const& manifest, zero::PartitionPlan const& plan, Rank rank,
                   StateViews const& states, RestoreReport& report) {
  auto const tensors = match(manifest, plan);
  auto const extents = plan.extents(rank);
  std::vector<Transfer> transfers;
  for (auto const& view : states) {
    TESSERA_VALIDATE(view.unit_shards.size() == plan.units().size(), InternalError, "state ",
                     view.name, " has ", view.unit_shards.size(), " unit shards, the plan ",
                     plan.units().size());
    std::size_t const state = manifest.state_index(view.name);
    clear_padding(plan, rank, extents, view);
    for (auto const& extent : extents)
      plan_transfers(*tensors[position(extent.unit)][static_cast<std::size_t>(extent.parameter)],
                     state, extent.parameter_offset.value(), extent.numel,
                     detail::extent_data(view, plan, extent), transfers);
  }
  auto const place = [](Transfer const& t) {
    return std::pair(t.source.extent->shard,
                     t.source.extent->states[t.source.state].file_offset + t.first * 4);
  };
  std::sort(transfers.begin(), transfers.end(),
            [&](auto const& a, auto const& b) { return place(a) < place(b); });
  for (auto const& transfer : transfers) report.bytes_needed += transfer.numel * 4;
  read_all(manifest, transfers, report);
}

}  // namespace

Manifest read_manifest(std::filesystem::path const& step_directory, comm::Collectives& comm) {
  std::string text;
  detail::collective_try(comm, [&] {
    if (comm.rank() == 0) text = read_manifest_text(step_directory);
  });
  text = comm::broadcast_bytes(comm, std::move(text), 0);
  Manifest manifest;
  detail::collective_try(comm, [&] { manifest = parse_manifest(text, step_directory); });
  return manifest;
}

void check_model(Manifest const& manifest, zero::PartitionPlan const& plan) {
  (void)match(manifest, plan);
}

RestoreReport restore_rank(Manifest const& manifest, zero::PartitionPlan const& plan, Rank rank,
                           StateViews const& states) {
  RestoreReport report;
  StateViews elementwise;
  for (auto const& view : states)
    if (view.extent == optim::Extent::elementwise) elementwise.push_back(view);
  restore_layer(manifest, plan, rank, elementwise, report);
  auto const reduced = manifest.reduced_manifests();
  for (auto const& view : states) {
    if (view.extent == optim::Extent::elementwise) continue;
    auto const of_state = std::find_if(reduced.begin(), reduced.end(),
                                       [&](Manifest const& m) { return m.states[0] == view.name; });
    TESSERA_VALIDATE(of_state != reduced.end(), DataError, manifest.file().string(),
                     " has no state '", view.name, "', only ",
                     detail::list_text(manifest.state_names()));
    restore_layer(*of_state, plan.of_extent(view.extent), rank, {view}, report);
  }
  return report;
}

std::vector<int> shards_of(Manifest const& manifest, zero::PartitionPlan const& plan, Rank rank,
                           StateLayers const& layers) {
  std::set<int> shards;
  auto const reduced = manifest.reduced_manifests();
  for (auto const& layer : layers) {
    if (layer.extent == optim::Extent::elementwise) {
      add_shards(manifest, plan, rank, shards);
      continue;
    }
    for (auto const& one : reduced)
      if (one.states[0] == layer.states[0])
        add_shards(one, plan.of_extent(layer.extent), rank, shards);
  }
  return {shards.begin(), shards.end()};
}

zero::Engine::Fill weights_of(Manifest const& manifest, zero::PartitionPlan const& plan) {
  struct Source {
    Manifest manifest;
    std::vector<std::vector<TensorRecord const*>> tensors;  ///< tensors of `manifest`
  };
  auto const source = std::make_shared<Source>(Source{manifest, {}});
  source->tensors = match(source->manifest, plan);
  return [source](zero::UnitIndex unit, int parameter, std::int64_t first, std::int64_t numel,
                  float* out) {
    std::vector<Transfer> transfers;
    plan_transfers(*source->tensors[position(unit)][static_cast<std::size_t>(parameter)],
                   source->manifest.state_index(optim::master_weights_name), first, numel, out,
                   transfers);
    RestoreReport ignored;  // the caller counts what is not finite
    read_all(source->manifest, transfers, ignored);
  };
}

std::vector<NonFinite> merge_nonfinite(std::vector<NonFinite> const& mine,
                                       comm::Collectives& comm) {
  if (comm::agree(comm, mine.empty())) return {};
  auto const lists = comm::gather_bytes(comm, to_tree(mine).dump(), 0);
  ConfigTree all = ConfigTree::array();
  for (auto const& one : lists) all.push_back(ConfigTree::parse(one, "counts of a rank"));
  all = ConfigTree::parse(comm::broadcast_bytes(comm, all.dump(), 0), "counts of all ranks");
  NonFiniteTally tally;
  for (auto const& of_rank : all.as_array())
    for (auto const& one : nonfinite_from(of_rank)) tally.add(one.tensor, one.state, one.count);
  return tally.list();
}

RestoreReport restore(Manifest const& manifest, zero::PartitionPlan const& plan,
                      StateViews const& states, comm::Collectives& comm) {
  RestoreReport report;
  detail::collective_try(comm, [&] {
    TESSERA_VALIDATE(comm.size() % plan.ranks() == 0, InternalError, "a plan for ", plan.ranks(),
                     " ranks is restored by ", comm.size());
    report = restore_rank(manifest, plan, plan.rank_of(comm.rank()), states);
  });
  if (!plan.is_in_first_copy(comm.rank())) report.nonfinite.clear();  // another rank counts them
  report.nonfinite = merge_nonfinite(report.nonfinite, comm);
  return report;
}

}  // namespace tessera::checkpoint
