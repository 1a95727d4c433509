#include "tessera/train/setup/swap_room.hpp"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <map>

#include "tessera/comm/base/planning.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/rounding.hpp"
#include "tessera/core/text.hpp"
#include "tessera/memory/planning.hpp"
#include "tessera/zero/layout/parameter_subset.hpp"

namespace tessera::train {
namespace {

std::string bytes_text(std::size_t count) { return human_bytes(static_cast<std::int64_t>(count)); }

std::string names_of(SwapRoom const& room) {
  std::string out;
  for (auto const& directory : room.directories)
    out += concat(out.empty() ? "" : " and ", directory.string());
  return out;
}

/// What the engine of a rank will need, without its memory and files.
/// @throws ConfigError when the buffers of weights are too small for the model's units
zero::MemoryReport planned_memory(zero::EngineConfig const& config,
                                  std::vector<memory::UnitSpec> const& units, int ranks,
                                  StatesOf states) try {
  memory::BufferPlanning const without_memory;
  memory::PlanningQueue compute(states.space);
  auto const comm = comm::make_planning_collectives(ranks, states.space);
  if (states.pass == memory::Pass::evaluation)
    return zero::make_weights(config, units, *comm, compute)->memory();
  return zero::make_engine(config, units, *comm, compute)->memory();
} catch (ConfigError const& e) {
  auto const& weights = zero::settings<zero::ShardedWeights>(config).weight_swap;
  if (!weights || zero::trained_parameters(units).empty()) throw;
  throw ConfigError(
      concat("offload_param.buffer_size is ", weights->buffer_numel, " elements: ", e.what()));
}

/// Of several directories each one takes the same part.
void add(std::map<dev_t, SwapRoom>& rooms, memory::SwapDirectories const& directories,
         std::size_t bytes, std::size_t SwapRoom::*part) {
  for (auto const& directory : directories) {
    struct stat file {};
    struct statvfs system {};
    bool const is_known =
        ::stat(directory.c_str(), &file) == 0 && ::statvfs(directory.c_str(), &system) == 0;
    if (!is_known || system.f_blocks == 0) continue;  // no blocks: not of files, such as /proc
    auto& room = rooms[file.st_dev];
    auto& names = room.directories;
    if (std::find(names.begin(), names.end(), directory) == names.end()) names.push_back(directory);
    room.*part += ceil_divide(bytes, directories.size());
    room.free = static_cast<std::size_t>(system.f_bavail) * system.f_frsize;
  }
}

}  // namespace

std::vector<SwapRoom> swap_rooms(zero::EngineConfig const& config,
                                 zero::MemoryReport const& memory) {
  std::map<dev_t, SwapRoom> found;
  if (auto const& swap = zero::settings<zero::ShardedStates>(config).optimizer_swap)
    add(found, swap->transfers.directories, memory.swapped - memory.swapped_weights,
        &SwapRoom::optimizer);
  if (auto const& swap = zero::settings<zero::ShardedWeights>(config).weight_swap)
    add(found, swap->transfers.directories, memory.swapped_weights, &SwapRoom::weights);
  std::vector<SwapRoom> out;
  for (auto& [device, room] : found) out.push_back(std::move(room));
  return out;
}

std::string swap_shortage(std::vector<SwapRoom> const& rooms, int ranks, std::string const& host) {
  for (auto const& room : rooms) {
    auto const needed = room.needed(ranks);
    if (needed <= room.free) continue;
    auto const all = static_cast<std::size_t>(ranks);
    return concat("nvme_path ", names_of(room), " on host ", host, " has ", bytes_text(room.free),
                  " free, and swap files of ", counted(ranks, "rank"), " there need ",
                  bytes_text(needed), " (master weights and optimizer states ",
                  bytes_text(all * room.optimizer), ", weights ", bytes_text(all * room.weights),
                  "); free ", bytes_text(needed - room.free),
                  ", name more drives in nvme_path, separated by ':', use more nodes, or set "
                  "device \"cpu\" for one of offload_optimizer and offload_param");
  }
  return {};
}

void check_swap_room(zero::EngineConfig const& config, std::vector<memory::UnitSpec> const& units,
                     topology::RankInfo const& rank, comm::Collectives& comm, StatesOf states) {
  auto const& weights = zero::settings<zero::ShardedWeights>(config).weight_swap;
  if (!zero::settings<zero::ShardedStates>(config).optimizer_swap && !weights) return;
  auto const rooms = swap_rooms(config, planned_memory(config, units, comm.size(), states));
  auto const shortage = swap_shortage(rooms, rank.local_size, rank.host);
  auto const first = comm::all_reduce_value(
      comm, std::int64_t{shortage.empty() ? comm.size() : comm.rank()}, comm::ReduceOp::min);
  if (first < comm.size())
    throw IoError(comm::broadcast_bytes(comm, shortage, static_cast<int>(first)));
  for (auto const& room : rooms)
    log::info(concat("nvme_path ", names_of(room), ": swap files of ",
                     counted(rank.local_size, "rank"), " of this node need ",
                     bytes_text(room.needed(rank.local_size)), " of ", bytes_text(room.free),
                     " free"));
}

}  // namespace tessera::train
